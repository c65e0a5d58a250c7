"""Rules and runs made for them: as short as they can be, with journals and samples as real runs have them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordee.core.findings import Finding
from cordee.core.units import utc_text
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter

HEAD = "version: 1\nrules:\n"
RULE = """\
- id: {id}
  text: Something is wrong.
  when: {when}
  scope: node
  action: {action}
  next: mend it
  source: our operators
  example: {example}
  counterexample: {counterexample}
"""
XID = "{finding: hardware-xid, node: n1}"
OTHER = "{finding: hang-gil, node: n1}"


@pytest.fixture
def rules_file(tmp_path) -> Callable[..., Path]:
    """Write a file of rules, each given as keys of RULE."""

    def write(*rules: dict[str, str], name: str = "site.yaml") -> Path:
        path = tmp_path / name
        plain = {"id": "site-xid", "when": '{finding: "hardware-*"}', "action": "ticket"}
        texts = [RULE.format(**{**plain, "example": XID, "counterexample": OTHER, **rule}) for rule in rules]
        path.write_text(HEAD + "".join(texts))
        path.chmod(0o644)
        return path

    return write


@pytest.fixture
def make_run(tmp_path) -> Callable[..., RunFolder]:
    """Make a run that has ended, with findings in its journal."""

    def make(
        number: int,
        *findings: tuple[str, list[str]] | Finding,
        backend: str = "slurm",
        nodes: int = 4,
        name: str = "gpt",
        at: float = 0.0,
    ) -> RunFolder:
        folder = RunFolder.create(tmp_path / "runs", f"{name}-20261101T{number:06d}Z-aaaa")
        folder.plan.write_text(json.dumps({"backend": backend, "cluster": "alps", "steps": [{"systems": {}}]}))
        wall = lambda: 1_800_000_000.0 + at + number  # noqa: E731
        JournalWriter(folder.journal, "client", 0, wall=wall).append("submitted", durable=False, nodes=nodes)
        journal = JournalWriter(folder.journal, "supervisor-1", 1, wall=wall)
        journal.append("supervisor_started", durable=False, segment=1)
        placed = [{"node": f"n{node}", "ranks": [node]} for node in range(nodes)]
        journal.append("attempt_started", durable=False, attempt=1, world_size=nodes, nodes=placed)
        for one in findings:
            finding = one if isinstance(one, Finding) else named(*one)
            journal.append("finding", durable=False, finding=finding.document())
        journal.append("ended", durable=False, state="failed", exit_code=1, reason="failed")
        return folder

    return make


def named(rule: str, nodes: list[str], text: str = "GPU 0: XID 79", severity: str = "error") -> Finding:
    return Finding(text, severity, rule, next="look", evidence={"nodes": nodes, "ranks": []})


def event(name: str, at: float = 0.0, **fields: Any) -> dict[str, Any]:
    return {"event": name, "time": utc_text(1_800_000_000.0 + at), "epoch": 1, "seq": 1, "writer": "w", **fields}
