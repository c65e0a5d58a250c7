"""What is proposed for a node, and the words that mark it as ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cordee.core.units import utc_text
from cordee.systems.vetting.fleet.observations import NodeFault

TAG = "cordee:"
_WORD = re.compile(r"[^A-Za-z0-9_.+-]+")
ACTIONS = ("drain", "resume", "reset_gpu", "reboot", "diagnose", "ticket", "vet")


@dataclass(frozen=True)
class Proposal:
    """Something to do about one node.

    Attributes:
        action: one of `ACTIONS`.
        reason: of a drain: what the scheduler shows, beginning with our tag.
        rule, kind: of the fault behind it.
        why: for a person.
        evidence: the faults that count.
        partitions: of the node.
        check: the check that spoke against it.
        first_step: the rule's action, where the ladder begins.
        gpu: indices of the GPUs at fault, joined by commas; empty where they are not told apart.
        drain_id: id of the drain that it follows.
        held: why it is not done, None when it may be.
    """

    action: str
    node: str
    reason: str = ""
    rule: str = ""
    kind: str = "soft"
    why: str = ""
    evidence: tuple[NodeFault, ...] = ()
    partitions: tuple[str, ...] = ()
    check: str = ""
    first_step: str = ""
    gpu: str = ""
    drain_id: str = ""
    held: str | None = None

    def document(self) -> dict[str, Any]:
        """Return it as a JSON-ready dict."""
        evidence = [fault.document() for fault in self.evidence]
        keys = ("action", "node", "reason", "rule", "kind", "why", "check", "gpu", "held")
        return {**{key: getattr(self, key) for key in keys}, "partitions": list(self.partitions), "evidence": evidence}


def reason_of(scope: str, rule: str, job: str, at: float) -> str:
    """Return the reason of a drain: `cordee: node_problem gpu.hot job 123 2026-11-21`; plain letters only, since a
    scheduler hands it to scripts."""
    problem = "user_problem" if scope == "user" else "node_problem"
    words = [TAG, problem, _WORD.sub("_", rule), *(["job", _WORD.sub("_", job)] if job else []), utc_text(at)[:10]]
    return " ".join(words)
