"""A node that a watcher suspects: vetted again when ranks are restarted, and a spare takes its place."""

from __future__ import annotations

import json
import zipfile

import pytest

from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")

LONG = "python train.py 300 0.03"
# Suspects the first node as soon as there is a checkpoint; once a rank is killed, all are started again.
SUSPECTING = """
from cordee.control.supervisor.decisions.vocabulary import NodeSuspected
from cordee.control.supervisor.watchers import RunWatcher


class SuspectFirst(RunWatcher):
    def second(self, now):
        if self.run.attempt() is not None:
            self.run.suspect(NodeSuspected("local-0", "all its ranks are 20 % slower than peers"))
"""


@pytest.fixture
def suspecting(job, tmp_path):
    def made(need: str) -> LocalRun:
        setup = f"setup = ['echo x >> {tmp_path}/setup.$CORDEE_SETUP_NODE']\n"
        run = LocalRun(job(toml=setup + need, run=LONG), tmp_path / "runs")
        with zipfile.ZipFile(run.folder.node_zip, "a") as bundle:
            bundle.writestr("suspecting.py", SUSPECTING)
        plan = json.loads(run.folder.plan.read_text())
        plan["node_parts"]["watcher/test"] = "suspecting:SuspectFirst"
        run.folder.plan.write_text(json.dumps(plan))
        return run

    return made


def test_it_is_vetted_again_without_its_setup_lines_and_a_spare_takes_its_place(suspecting, tmp_path):
    with suspecting("[need]\nnodes = 2\nspare_nodes = 1\n") as run:
        run.wait(lambda state: state.checkpoint is not None and run.events("node_suspected"))
        run.kill("rank 1")
        state = run.wait_end()
        assert (state.state, state.restarts) == ("finished", 1)
        first, second = (event["nodes"] for event in run.events("nodes_chosen"))
        assert first == ["local-0", "local-1"]
        assert second == ["local-1", "local-2"]
        assert len(run.events("node_suspected")) == 1
        assert state.node("local-0").suspected
        vetted = [event["node"] for event in run.events("node_verdict")]
        assert vetted.count("local-0") == 2
        assert (tmp_path / "setup.local-0").read_text() == "x\n"


def test_where_there_is_no_spare_it_goes_on(suspecting):
    with suspecting("[need]\nnodes = 2\n") as run:
        run.wait(lambda state: state.checkpoint is not None and run.events("node_suspected"))
        run.kill("rank 1")
        state = run.wait_end()
        assert (state.state, state.restarts) == ("finished", 1)
        assert run.events("nodes_chosen")[1]["nodes"] == ["local-0", "local-1"]
