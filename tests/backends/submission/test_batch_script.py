"""What the batch script of a run does on its node, in a folder that belongs to others, and what it tells Slurm at the end.

Slurm is played by a `srun` that runs on this machine what it is given.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordee.control.supervisor.supervisor import EXIT_ENDED, EXIT_NOT_OURS
from cordee.job.submit import submitter
from cordee.job.submit.prepare import create_run, prepare
from cordee.machine.processes import tree
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.state import replay

SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
# Modules of the library that the control plane takes early, late, or only in one of its children.
TAKEN = ("secrets", "statistics", "queue", "uuid", "calendar", "zipfile", "gzip", "runpy", "json", "socket", "random")
HOSTILE = (
    "import os\nopen(os.path.join(os.path.dirname(__file__), 'ran'), 'a').write(__file__ + '\\n')\nraise ImportError\n"
)


class Site:
    """A Slurm of one node.

    Attributes:
        here: the folder that jobs are submitted from.
        env: the environment that batch scripts get.
    """

    def __init__(self, folder: Path) -> None:
        self.here, self._folder = folder / "here", folder
        for name in ("here", "tmp", "bin", "job"):
            (folder / name).mkdir()
        (folder / "bin" / "srun").write_text(SRUN)
        (folder / "bin" / "srun").chmod(0o755)
        (folder / "site.toml").write_text('scheduler = "slurm"\n[partitions.normal]\ndefault = true\ncores = 8\n')
        given = {
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "localhost",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_JOB_CPUS_PER_NODE": "2",
            "SLURMD_NODENAME": "localhost",
            "TMPDIR": str(folder / "tmp"),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        self.env = {**os.environ, **given}

    def run(self, script: str = "print('trained')\n") -> tuple[RunFolder, dict[str, Any]]:
        job = self._folder / "job"
        (job / "train.py").write_text(script)
        (job / "cordee.toml").write_text('name = "t"\nrun = "python train.py"\nvet.max_load = 1000.0\n')
        prepared = prepare(str(job), "site", {}, self._folder / "runs")
        return create_run(prepared), prepared.plan.document()

    def batch(
        self, folder: RunFolder, plan: dict[str, Any], supervisor: str | None = None, edit: Callable[[str], str] = str
    ) -> subprocess.CompletedProcess[str]:
        """Run a run's batch script as Slurm does.

        Args:
            folder, plan: of the run.
            supervisor: lines of shell that play the supervisor; agents then end at once.
            edit: changes the script.
        """
        if supervisor is not None:
            fake = self._folder / "bin" / "python-of-nodes"
            fake.write_text(f'#!/bin/bash\n[[ "$*" == *agent.agent* ]] && exit\n{supervisor}\n')
            fake.chmod(0o755)
            plan = {**plan, "python": str(fake)}
        script = folder.submit / "job.sbatch"
        script.write_text(edit(submitter("slurm").script(folder, plan)))
        with subprocess.Popen(
            ["bash", str(script)],
            cwd=self.here,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=60)
            finally:
                tree.kill_all(self._left())  # as Slurm ends what a job leaves
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def _left(self) -> list[int]:
        """Return the processes of this site's jobs, whatever session they are in."""
        mark, found = f"TMPDIR={self.env['TMPDIR']}\0".encode(), []
        for pid in tree.all_processes():
            with contextlib.suppress(OSError):
                found += [pid] if mark in Path(f"/proc/{pid}/environ").read_bytes() else []
        return found

    def left_behind(self) -> list[str]:
        return sorted(path.name for path in (self._folder / "tmp").iterdir())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    return Site(tmp_path)


@pytest.mark.usefixtures("real")
def test_nothing_in_the_folder_of_submission_is_run_instead_of_the_library(site):
    for name in TAKEN:
        (site.here / f"{name}.py").write_text(HOSTILE)
    site.env["PYTHONPATH"] = ":/nowhere"  # as `PYTHONPATH=$PYTHONPATH:/nowhere` makes it: its empty part is this folder
    folder, plan = site.run()
    done = site.batch(folder, plan)
    log = (folder.control / "supervisor.log").read_text()
    assert not (site.here / "ran").exists(), (site.here / "ran").read_text()
    assert (done.returncode, replay(read_journal(folder.journal)).state) == (0, "finished"), log


@pytest.mark.usefixtures("real")
def test_ranks_find_what_lies_beside_their_script_as_without_cordee(site, tmp_path):
    (tmp_path / "job" / "secrets.py").write_text("KEY = 'abc'\n")
    folder, plan = site.run(
        "import os, sys, secrets\nassert secrets.KEY == 'abc'\nassert 'PYTHONSAFEPATH' not in os.environ\n"
        "assert 'CORDEE_HEARTBEAT' not in os.environ\n"
    )
    assert site.batch(folder, plan).returncode == 0


def test_the_heartbeat_leaves_nothing_and_nothing_in_its_place_is_believed(site, tmp_path):
    thesis = tmp_path / "thesis"
    thesis.write_text("years of work")
    (tmp_path / "tmp" / "cordee-7-0.heartbeat").symlink_to(thesis)
    os.utime(thesis, (0, 0))
    folder, plan = site.run()
    beats = 'for n in {1..15}; do echo >&"$CORDEE_HEARTBEAT"; sleep 0.1; done'
    done = site.batch(folder, plan, beats, lambda text: text.replace("-t 5 ", "-t 1 ").replace("+= 5", "+= 60"))
    assert (done.returncode, done.stdout) == (0, "")
    assert thesis.read_text() == "years of work"
    assert site.left_behind() == ["cordee-7-0.heartbeat"]


def test_a_supervisor_whose_heart_stands_still_makes_room_for_the_next(site):
    folder, plan = site.run()
    starts = folder.control / "starts"
    hangs_once = f"echo >>{starts}\n[[ $(wc -l <{starts}) == 1 ]] && exec sleep 1000\nexit 0"
    done = site.batch(folder, plan, hangs_once, lambda text: text.replace("-t 5 ", "-t 0.02 "))
    assert done.returncode == 0
    assert len(starts.read_text()) == 2


@pytest.mark.usefixtures("real")
def test_a_silent_supervisor_is_not_killed_while_the_disk_does_not_answer(site, tmp_path):
    (tmp_path / "bin" / "sync").write_text("#!/bin/bash\nsleep 4\n")
    (tmp_path / "bin" / "sync").chmod(0o755)
    folder, plan = site.run()
    starts = folder.control / "starts"
    waits = f"echo >>{starts}\nsleep 2\nexit 0"
    done = site.batch(folder, plan, waits, lambda text: text.replace("-t 5 ", "-t 0.02 "))
    assert done.returncode == 0
    assert len(starts.read_text()) == 1


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("code", "starts", "told"),
    [(0, 1, 0), (EXIT_ENDED, 1, 1), (EXIT_NOT_OURS, 1, 0), (5, 10, 1), (137, 10, 1)],
    ids=["finished", "failed", "another leads it", "cannot see the run", "killed"],
)
def test_slurm_is_told_what_became_of_the_run(site, code, starts, told):
    folder, plan = site.run()
    count = folder.control / "starts"
    done = site.batch(folder, plan, f"echo >>{count}; exit {code}")
    assert (done.returncode, len(count.read_text())) == (told, starts)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(("state", "told"), [("finished", 0), ("failed", 1), ("cancelled", 1)])
def test_a_job_that_comes_after_the_end_tells_slurm_how_the_run_ended(site, state, told):
    folder, plan = site.run()
    journal = client_journal(folder.journal)
    journal.append("supervisor_started", epoch=1, segment=1)
    journal.append("ended", epoch=1, state=state, exit_code=told, reason="test", text="before this job began")
    before = len(read_journal(folder.journal))
    assert site.batch(folder, plan).returncode == told
    assert len(read_journal(folder.journal)) == before


@pytest.mark.usefixtures("real")
def test_a_run_that_cannot_be_claimed_is_not_taken_for_somebody_elses(site):
    folder, plan = site.run()
    (folder.control / "epochs").write_text("in the way")
    done = site.batch(folder, plan)
    assert done.returncode == 1
    assert "the supervisor ended 10 times in a minute, the last time with 5" in done.stdout


@pytest.mark.parametrize(("fails", "pauses"), [(1, 0), (3, 2)])
def test_agents_that_end_soon_are_started_again_at_once_and_only_then_after_a_pause(site, tmp_path, fails, pauses):
    begun, pause = tmp_path / "begun", tmp_path / "pause"
    # It forks nothing: the script kills what an srun has forked that is called srun too.
    fake = f"#!/bin/bash\necho >>{begun}; mapfile -t lines <{begun}; (( ${{#lines[@]}} > {fails} ))\n"
    (tmp_path / "bin" / "srun").write_text(fake)
    folder, plan = site.run()
    waits = f"until (( $(wc -l <{begun}) > {fails} )); do sleep 0.02; done"
    done = site.batch(folder, plan, waits, lambda text: text.replace("&& sleep 5", f"&& echo >>{pause}"))
    assert done.returncode == 0, done.stderr
    assert len(pause.read_text().splitlines() if pause.exists() else []) == pauses
