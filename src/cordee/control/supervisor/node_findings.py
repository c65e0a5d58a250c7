"""What systems' parts on the nodes have found, as findings of the run: one for each cause, again only where it has got worse."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from cordee.core.findings import Finding
from cordee.runs.journal import JournalWriter
from cordee.wire.messages import NodeFinding

_MOST, _MOST_NAMED = 200, 50


class _Told(NamedTuple):
    level: int
    nodes: int


class NodeFindings:
    """Writes what is new; what an earlier supervisor of the run has written is not.

    Args:
        journal: where it is written.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._told: dict[tuple[str, str], _Told] = {}
        self._written = 0

    def told_before(self, findings: Iterable[Finding]) -> None:
        """Take what the journal holds."""
        for finding in findings:
            about = finding.evidence if isinstance(finding.evidence, dict) else {}
            if "cause" in about and "level" in about:
                nodes = finding.place()["nodes"]
                of = "" if about.get("shared") else nodes[0] if nodes else ""
                self._told[str(about["cause"]), of] = _Told(int(about["level"]), len(nodes))

    def tell(self, found: Mapping[str, Sequence[NodeFinding]]) -> None:
        """Write what is new or worse of what nodes have found, by their names; of a cause that nodes share, in one finding."""
        causes: dict[tuple[str, str], dict[str, NodeFinding]] = {}
        for node, findings in found.items():
            for one in findings:
                causes.setdefault((one.cause, "" if one.shared else node), {})[node] = one
        for key, nodes in causes.items():
            worst = max(nodes.values(), key=lambda one: one.level)
            told = self._told.get(key, _Told(-1, len(nodes)))
            if worst.level <= told.level and len(nodes) < 2 * told.nodes:
                continue
            self._told[key] = _Told(max(worst.level, told.level), len(nodes))
            self._write(worst, nodes)

    def _write(self, worst: NodeFinding, nodes: Mapping[str, NodeFinding]) -> None:
        if self._written > _MOST:
            return
        self._written += 1
        if self._written > _MOST:
            text = f"nodes have found more than {_MOST} things: the rest is not written"
            self._journal.append("finding", finding=Finding(text, "warn", "node-findings-capped").document())
            return
        document = dict(worst.finding)
        ranks = {rank for one in nodes.values() for rank in _ranks(one)}
        evidence = {
            **(document.get("evidence") or {}),
            "nodes": sorted(nodes)[:_MOST_NAMED],
            "ranks": sorted(ranks),
            "cause": worst.cause,
            "level": worst.level,
            "shared": worst.shared,
        }
        document.update(text=f"{named(sorted(nodes))}: {document.get('text')}", evidence=evidence)
        self._journal.append("finding", finding=Finding.from_document(document).document())


def named(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _ranks(found: NodeFinding) -> list[Any]:
    evidence = found.finding.get("evidence") or {}
    return list(evidence.get("ranks", ()))
