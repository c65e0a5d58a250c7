"""The site around the runs: Slurm and the history are asked seldom, and what they do not say is named."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.faces.web.cluster_status import RunsSite, Seldom
from cordee.faces.web.fleet import fleet_document
from cordee.faces.web.runs.library import RunLibrary
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.systems.vetting.node.judge.record import write
from support.made.runs import MadeRun, write_run

NODES = """\
NodeName=nid000000 Arch=x86_64 State=ALLOCATED Partitions=gpu Gres=gpu:4
NodeName=nid000009 Arch=x86_64 State=IDLE+DRAIN Partitions=gpu,debug Reason=bad cable [root@2026-11-21T00:00:00]
"""
JOBS = """\
41|eve|train|RUNNING|gpu|2|2026-11-21T00:00:00|1:00:00|nid[000007-000008]|None|
42|me|made|RUNNING|gpu|1|2026-11-21T00:00:00|1:00:00|nid000000|None|cordee:{run}
43|<b>eve</b>|waits|PENDING|gpu|4|N/A|2:00:00||Resources|
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands as programs that say what is in files beside them."""
    place = tmp_path / "slurm"
    place.mkdir()
    for name in ("squeue", "scontrol"):
        program = place / name
        program.write_text(f"#!/bin/sh\nexec cat {place}/{name}.txt\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=":")
    return place


@pytest.fixture
def made(runs: Path) -> RunFolder:
    return write_run(runs, MadeRun(4, 20), seal=False)


def test_slurm_tells_other_jobs_and_the_nodes_that_no_run_had(slurm: Path, runs: Path, made: RunFolder) -> None:
    (slurm / "scontrol.txt").write_text(NODES)
    (slurm / "squeue.txt").write_text(JOBS.format(run=made.id).replace("|", "\x1f"))
    fleet = fleet_document(RunLibrary([runs]).summaries(), RunsSite())
    nodes = {node["node"]: node for node in fleet["nodes"]}
    assert nodes["nid000000"]["state"] == "allocated"
    assert nodes["nid000000"]["runs"][0]["id"] == made.id
    assert nodes["nid000009"]["reason"].startswith("bad cable")
    jobs = {job["job"]: job for job in fleet["jobs"]}
    assert jobs["41"]["nodes"] == ["nid000007", "nid000008"]
    assert jobs["42"]["run"] == made.id
    assert jobs["43"]["user"] == "<b>eve</b>"
    assert "other jobs" not in str(fleet["missing"])


def test_a_slurm_that_does_not_answer_is_named(slurm: Path, runs: Path, made: RunFolder) -> None:
    fleet = fleet_document(RunLibrary([runs]).summaries(), RunsSite())  # cat finds no file
    assert [node["node"] for node in fleet["nodes"]] == ["nid000000"]
    assert "scontrol" in fleet["missing"][0]["why"]


def test_the_history_tells_what_vettings_said(
    runs: Path, made: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CORDEE_HISTORY", str(tmp_path / "history"))
    verdicts = {"nid000000": "healthy", "nid000005": "bad"}
    document = {
        "schema": "cordee.vetting/1", "protocol": "p", "digest": "d", "cluster": None, "run": None, "user": "ada", "job": "7",
        "at": time.time(), "seconds": 1.0, "verdict": "exclude", "exclude": [], "reason": "as it is", "unavailable": [],
        "confused": [], "links": [], "pairs": [],
        "nodes": [{"node": node, "verdict": verdict, "results": []} for node, verdict in verdicts.items()],
    }  # fmt: skip
    write(document, {"folder": str(tmp_path / "history")})
    fleet = fleet_document(RunLibrary([runs]).summaries(), RunsSite())
    nodes = {node["node"]: node for node in fleet["nodes"]}
    assert nodes["nid000000"]["verdicts"] == {"healthy": 1}
    assert nodes["nid000005"]["verdicts"] == {"bad": 1}
    assert nodes["nid000005"]["state"] == "seen"


def test_what_is_asked_seldom_is_asked_once_for_all_and_keeps_its_failure() -> None:
    calls: list[int] = []

    def ask() -> Any:
        calls.append(1)
        raise CordeeError("nobody there")

    asked: Seldom[list[int]] = Seldom(ask, [], 1000.0)
    assert asked.get().value == []
    assert asked.get().why == "nobody there"
    assert len(calls) == 1


def test_a_node_in_the_findings_of_three_runs_is_on_the_page_of_the_fleet(runs: Path) -> None:
    finding = Finding("GPU 0: XID 79", "error", "hardware-xid", evidence={"nodes": ["nid000004"], "ranks": [0]})
    for number in range(3):
        folder = RunFolder.create(runs, f"gpt-2026110{number + 1}T010203Z-aaaa")
        folder.plan.write_text('{"backend": "slurm", "cluster": "alps"}')
        JournalWriter(folder.journal, "supervisor-1", 1).append("finding", finding=finding.document())
    fleet = fleet_document(RunLibrary([runs]).summaries(), RunsSite([runs]))
    (place,) = fleet["again"]
    assert (place["kind"], place["name"], len(place["runs"])) == ("node", "nid000004", 3)
    assert "again" not in str(fleet["missing"])
