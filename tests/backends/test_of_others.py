"""A package that is not Cordée's brings a back end, which queues and cannot chain: the job of `make demo` runs on it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay
from cordee.systems.data.account import account_of
from cordee.testing.patience import wait_until
from support.data.corpora import pack_corpus

from .sites import OUTSIDE, SpoolSite

pytestmark = pytest.mark.usefixtures("real")

EXAMPLE = Path(__file__).parents[2] / "examples" / "char-gpt"
SMALL = (
    "--set",
    "run=python train.py --steps 300 --batch 8",
    "--set",
    "vet.modules=[]",
    "--set",
    "vet.max_load=1000.0",
)
KILL_AFTER = 55


class Desk:
    """Somebody who has installed both packages."""

    def __init__(self, folder: Path) -> None:
        self.runs, self.site = folder / "runs", SpoolSite(folder, dict(os.environ))

    def cordee(self, *arguments: str, code: int = 0) -> str:
        done = self.ask(*arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from cordee.faces.cli import main; main()", *arguments]
        env = {**self.site.environ, "CORDEE_RUNS": str(self.runs)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def json(self, *arguments: str) -> dict[str, Any]:
        return dict(json.loads(self.cordee(*arguments, "--json")))

    @property
    def run(self) -> RunFolder:
        """The only run."""
        (folder,) = [path.parent for path in self.runs.glob("*/journal")]
        return RunFolder(folder)

    @property
    def state(self) -> RunState:
        return replay(read_journal(self.run.journal), self.run.id)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.site.end()


def test_the_job_of_the_demo_waits_trains_loses_a_rank_and_goes_on_with_twice_as_many(desk, tmp_path):
    job = tmp_path / "char-gpt"
    shutil.copytree(EXAMPLE, job, ignore=shutil.ignore_patterns("runs", "corpus", "__pycache__"))
    pack_corpus(job / "corpus")
    on = (str(job), "--on", "shed", *SMALL, "--set", "restart.retries=0")

    checked = desk.json("check", *on)
    assert checked["plan"]["backend"] == "spool"
    assert not [finding for finding in checked["findings"] if finding["severity"] == "error"]

    with desk.site.full():
        desk.cordee("run", *on, "--detach")
        assert "another run has the machine" in desk.cordee("show", "last")
        assert desk.json("advise", "last")["verdict"] == "it waits because another run has the machine"
    wait_until(lambda: (desk.state.step or 0) > KILL_AFTER, 180)
    os.kill(int(desk.state.rank(1).pid), signal.SIGKILL)
    wait_until(lambda: desk.state.ended, 60)
    assert desk.state.state == "failed"

    desk.cordee("resume", "last", "--nodes", "4")
    shown = desk.json("show", "last")
    assert (shown["state"], shown["segments"], len(shown["ranks"])) == ("finished", 2, 4)
    (account,) = account_of(desk.state)
    assert (account.verdict, len(account.stretches)) == ("once", 2)

    plan = json.loads(desk.run.plan.read_text())
    assert (plan["backend"], plan["backend_part"]) == ("spool", "spool:BACKEND")
    with zipfile.ZipFile(desk.run.node_zip) as archive:
        assert "spool/allocation.py" in archive.namelist()


def test_a_run_ends_with_its_time_where_it_cannot_come_back(desk, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    (job / "cordee.toml").write_text(
        'name = "t"\nrun = "sleep 600"\nvet.max_load = 1000.0\ncheckpoint.grace = "2s"\n[need]\ntime = "8s"\n'
    )
    done = desk.ask("run", str(job), "--on", "shed")
    assert done.returncode != 0
    assert (desk.state.state, desk.state.reason, desk.state.segments) == ("failed", "time_limit", 1), desk.state.text


@pytest.mark.gate
def test_where_the_package_is_not_installed_its_name_is_refused_and_its_runs_can_be_looked_at(desk, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    (job / "cordee.toml").write_text('name = "t"\nrun = "true"\nvet.max_load = 1000.0\n')
    desk.cordee("run", str(job), "--on", "shed")
    desk.site.environ.pop("PYTHONPATH")
    refused = desk.ask("check", str(job), "--on", "shed")
    assert refused.returncode != 0
    assert '"htcondor", "local" or "slurm"' in refused.stderr
    assert desk.json("show", "last")["state"] == "finished"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("spool = nowhere:BACKEND", "cannot be loaded"),
        ("spool = spool:NOTHING", "cannot be loaded"),
        ("spool = json:dumps", "is not the back end spool"),
        ("slurm = spool:BACKEND", "is not one of its values"),
    ],
)
def test_a_package_that_is_broken_is_named_and_takes_no_name_of_ours(desk, tmp_path, said, words):
    other = Path(shutil.copytree(OUTSIDE, tmp_path / "other"))
    (other / "spool-1.0.dist-info" / "entry_points.txt").write_text(f"[cordee.backends]\n{said}\n")
    desk.site.environ["PYTHONPATH"] = desk.site.environ["PYTHONPATH"].replace(str(OUTSIDE), str(other))
    job = tmp_path / "job"
    job.mkdir()
    (job / "cordee.toml").write_text('name = "t"\nrun = "true"\n')
    done = desk.ask("check", str(job), "--on", "shed")
    assert done.returncode != 0
    assert words in done.stdout + done.stderr
