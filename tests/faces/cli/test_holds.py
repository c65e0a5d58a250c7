"""Jobs that Slurm holds or suspends: what commands say of them, and which hold a command releases."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from cordee.backends.slurm.submitter import SlurmSubmitter
from cordee.faces.cli import follow, runs, show
from cordee.faces.cli.scheduler_state import stand
from cordee.faces.cli.watch.screen import WatchScreen
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, client_journal, read_journal
from cordee.runs.state import RunState, replay

LAUNCH = "launch failed requeued held"
LONG_AGO = 1_700_000_000.0
COMMAND = """#!{python}
import json, os, sys
from pathlib import Path
here = Path(os.environ["FAKE_SLURM"])
job, name = json.loads((here / "job.json").read_text()), Path(sys.argv[0]).name
if name == "squeue":
    print(f"7|{{job['state']}}|{{job['reason']}}|cordee:{{job['run']}}")
elif sys.argv[1] == "show":
    if "away" in job:
        sys.exit("Unable to contact slurm controller")
    print("JobId=7 JobState=PENDING Reason=" + job.get("now", job["reason"]).replace(" ", "_") + " Dependency=(null)")
else:
    (here / "releases").open("a").write("x")
    sys.exit(job["refused"] or 0)
"""


class FakeSlurm:
    """One job, as squeue and scontrol know it, and how often it was released."""

    def __init__(self, folder: Path, run: RunFolder) -> None:
        self.folder, self.run = folder, run
        self.job("RUNNING", "None")

    def job(self, state: str, reason: str, *, refused: str = "", **more: str) -> None:
        told = {"state": state, "reason": reason, "refused": refused, "run": self.run.id, **more}
        (self.folder / "job.json").write_text(json.dumps(told))

    @property
    def releases(self) -> int:
        record = self.folder / "releases"
        return record.stat().st_size if record.exists() else 0

    def look(self) -> str:
        """Return the standing's state as a command that looks now sees it."""
        for cache in self.folder.glob("cordee/*.json"):
            cache.unlink()
        return stand(self.run, self.state())[1].state

    def state(self) -> RunState:
        return replay(read_journal(self.run.journal), self.run.id)


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> FakeSlurm:
    """A run whose journal says that it runs, silent for long, and a Slurm that may say otherwise."""
    run = RunFolder.create(tmp_path / "runs", "t-20261121T000000Z-aaaa")
    run.plan.write_text(json.dumps({"schema": "cordee.plan/1", "backend": "slurm", "steps": [{"request": {}}]}))
    client_journal(run.journal).append("submitted", backend="slurm", nodes=1, ranks=1)
    client_journal(run.journal).append("placed", job="7")
    JournalWriter(run.journal, "supervisor-1", 1).append("supervisor_started", pid=1, segment=1)
    for journal in run.journal.iterdir():
        os.utime(journal, (LONG_AGO, LONG_AGO))
    for name in ("squeue", "scontrol"):
        (tmp_path / name).write_text(COMMAND.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    for name, value in (("PATH", tmp_path), ("FAKE_SLURM", tmp_path), ("XDG_CACHE_HOME", tmp_path)):
        monkeypatch.setenv(name, str(value))
    return FakeSlurm(tmp_path, run)


@pytest.mark.parametrize(
    ("state", "reason", "stands", "next", "releasable"),
    [
        ("PENDING", LAUNCH, "held", "`scontrol release 7`", True),
        ("PENDING", "JobHeldUser", "held", "`scontrol release 7`", False),
        ("PENDING", "JobHeldAdmin", "held", "", False),
        ("PENDING", "job requeued in held state", "held", "`scontrol release 7`", False),
        ("REQUEUE_HOLD", "None", "held", "`scontrol release 7`", False),
        ("SPECIAL_EXIT", "None", "held", "`scontrol release 7`", False),
        ("PENDING", "Priority", "waiting", "", False),
        ("SUSPENDED", "None", "suspended", "wait", False),
        ("RUNNING", "None", "running", "", False),
    ],
)
def test_a_hold_is_told_from_waiting_with_what_ends_it(slurm, state, reason, stands, next, releasable):
    slurm.job(state, reason)
    standing = SlurmSubmitter().standing(slurm.run, age_s=0.0)
    assert (standing.state, standing.releasable) == (stands, releasable)
    assert next in standing.next


def test_the_hold_after_a_failed_launch_is_released_once_in_a_run(slurm):
    slurm.job("PENDING", LAUNCH)
    assert (slurm.look(), slurm.releases) == ("waiting", 1)
    said = f"job 7 ({LAUNCH}) was released: `release_held` in the profile"
    assert f"hold        {said}" in show.describe(slurm.run, slurm.state())
    assert said in follow.milestones(slurm.state())
    assert (slurm.look(), slurm.releases) == ("held", 1)


def test_a_profile_that_forbids_it_leaves_the_hold_to_a_person(slurm):
    plan = json.loads(slurm.run.plan.read_text())
    slurm.run.plan.write_text(json.dumps({**plan, "release_held": False}))
    slurm.job("PENDING", LAUNCH)
    assert (slurm.look(), slurm.releases) == ("held", 0)


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin", "job requeued in held state"])
def test_holds_of_others_are_never_released(slurm, reason):
    slurm.job("PENDING", reason)
    assert (slurm.look(), slurm.releases) == ("held", 0)
    slurm.job("PENDING", LAUNCH, now=reason)
    assert (slurm.look(), slurm.releases) == ("held", 0)


@pytest.mark.parametrize("refused", ["Access/permission denied", "Socket timed out on send/recv operation"])
def test_a_release_that_slurm_refuses_or_may_have_taken_is_told_and_not_tried_again(slurm, refused):
    slurm.job("PENDING", LAUNCH, refused=refused)
    assert (slurm.look(), slurm.look(), slurm.releases) == ("held", "held", 1)
    assert any("could not be released" in line and refused in line for line in show.describe(slurm.run, slurm.state()))


def test_a_controller_that_does_not_answer_is_asked_again(slurm):
    slurm.job("PENDING", LAUNCH, away="yes")
    assert (slurm.look(), slurm.releases) == ("held", 0)
    slurm.job("PENDING", LAUNCH)
    assert (slurm.look(), slurm.releases) == ("waiting", 1)


def test_a_run_that_is_being_cancelled_is_not_released(slurm):
    client_journal(slurm.run.journal).append("cancel_requested", by="me")
    slurm.job("PENDING", LAUNCH)
    assert (slurm.look(), slurm.releases) == ("held", 0)


@pytest.mark.parametrize(
    ("state", "reason", "word", "said", "next"),
    [
        (
            "PENDING",
            "JobHeldUser",
            "held",
            "held in the queue: JobHeldUser (job 7); has not run for ",
            "next: `scontrol release 7`",
        ),
        (
            "SUSPENDED",
            "None",
            "suspended",
            "suspended: it has its nodes and its processes are stopped (job 7); has not",
            "next: wait",
        ),
    ],
)
def test_every_command_says_that_a_run_is_held_or_suspended(
    slurm, monkeypatch, capsys, state, reason, word, said, next
):
    slurm.job(state, reason)
    shown = CliRunner().invoke(show.command, [str(slurm.run.root)]).output
    assert f"state       {word}\n" in shown
    assert f"scheduler   {said}" in shown
    listed = CliRunner().invoke(runs.command, ["--runs", str(slurm.run.root.parent)]).output
    assert f"{slurm.run.id}  {word}  " in listed
    assert said in listed
    view = WatchScreen(slurm.run)
    view.read()
    picture = Console(width=80, file=io.StringIO())
    picture.print(view.picture(40, 80))
    assert f"\n{next}" in picture.file.getvalue()
    assert view.word == word
    assert said in view.waits
    monkeypatch.setattr(follow, "_FIRST_STANDING_S", 0.0)
    following = follow.RunFollower(slurm.run)
    following._once()
    following._look_after()
    assert f"cordee: {said}" in capsys.readouterr().err
