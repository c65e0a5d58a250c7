"""Real ranks of a script that knows nothing of Cordée hang: who, where and why is told, and the run goes on from its checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.faces.cli import cordee as main
from cordee.faces.report.run_document import run_document
from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

SCRIPT = Path(__file__).with_name("hanging_train.py")
JOB = """\
name = "hang"
run = "python train.py {kind}"
[need]
nodes = 2
ranks_per_node = {per_node}
[vet]
max_load = 1000.0
modules = []
[hang]
after = "{after}"
action = "{action}"
[checkpoint]
path = "."
pattern = "saved.pt"
resume = "self"
"""
FOUND = {
    "stop": "hang-stopped",
    "loop": "hang-gil",
    "fifo": "hang-input",
    "collective": "hang-collective",
    "skip": "hang-collective",
    "sleep": "hang-missing-rank",
}


def hung(folder: Path, kind: str, action: str, per_node: int) -> dict:
    """Return the document of a run whose last rank hung."""
    job = folder / "job"
    job.mkdir()
    shutil.copy(SCRIPT, job / "train.py")
    (job / "cordee.toml").write_text(JOB.format(kind=f"{kind} 12", action=action, per_node=per_node, after="10s"))
    with LocalRun(job, folder / "runs") as run:
        run.wait_end()
        return run_document(run.folder, run.state)


def judged(document: dict, kind: str, rank: int) -> None:
    (finding,) = [one for one in document["findings"] if one["rule"].startswith("hang-") and one["severity"] == "error"]
    assert (finding["rule"], finding["ranks"], finding["nodes"]) == (FOUND[kind], [rank], ["local-1"]), finding["text"]
    if kind != "stop":
        assert "train.py:" in finding["where"]


def test_a_rank_that_is_stopped_is_named_and_the_run_goes_on_from_its_checkpoint(tmp_path):
    document = hung(tmp_path, "stop", "restart", 1)
    assert (document["state"], document["restarts"]) == ("finished", 1)
    judged(document, "stop", 1)
    assert "stopped by a signal" in document["failures"][0]["message"]


@pytest.mark.gate
def test_where_the_ranks_of_a_run_stand_can_be_asked_while_it_goes_on(tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    shutil.copy(SCRIPT, job / "train.py")
    (job / "cordee.toml").write_text(JOB.format(kind="not 3000", action="report", per_node=1, after="auto"))
    with LocalRun(job, tmp_path / "runs") as run:
        run.wait(lambda _: (job / "saved.pt").exists(), 90)
        done = CliRunner().invoke(main, ["stacks", str(run.folder.root), "--json"])
        assert run.state.state == "running"
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["asked"], sorted(document["ranks"]), document["without"]) == (True, ["0", "1"], [])
    assert all("train.py:" in line for line in document["ranks"].values())
    assert not [one for one in run.state.findings if one.rule.startswith("hang")]


@pytest.mark.campaign
@pytest.mark.parametrize("kind", FOUND)
def test_each_of_eight_ranks_that_hangs_in_its_own_way_is_named_with_its_line(tmp_path, kind):
    document = hung(tmp_path, kind, "restart", 4)
    assert (document["state"], document["restarts"]) == ("finished", 1)
    judged(document, kind, 7)


@pytest.mark.campaign
def test_a_run_that_is_to_end_when_it_hangs_has_failed(tmp_path):
    document = hung(tmp_path, "sleep", "end", 1)
    assert (document["state"], document["reason"], document["exit_code"]) == ("failed", "hang", 1)
    judged(document, "sleep", 1)
