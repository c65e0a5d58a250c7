"""The places that the contract of the submit seam is held against."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cordee.job.submit import Submitter, submitter
from cordee.job.submit.prepare import create_run, prepare
from cordee.machine.processes import tree as processes
from cordee.runs.folder import RunFolder
from cordee.testing.htcondor import DisposablePool
from cordee.testing.slurm import DisposableSlurm
from cordee.testing.submitting import Placeable, SchedulerSite, SubmitterSite

HERE = Path(__file__).parent
FAKES = HERE / "fakes"
COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo")
AWAY_S = 3.0


def write_job(folder: Path) -> Path:
    """Write a job that goes on until it is cancelled."""
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text("import time\ntime.sleep(1000)\n")
    (job / "cordee.toml").write_text('name = "t"\nrun = "python train.py"\nvet.max_load = 1000.0\n')
    return job


class LocalSite(SubmitterSite):
    """This machine: a run is held while its keeper lives."""

    def __init__(self, folder: Path) -> None:
        self.job, self.runs, self.folders = write_job(folder), folder / "runs", []

    def submitter(self) -> Submitter:
        return submitter("local")

    def run(self) -> Placeable:
        prepared = prepare(str(self.job), "local", {}, self.runs)
        self.folders.append(create_run(prepared))
        return self.folders[-1], prepared.plan.document()

    def held(self, folder: RunFolder) -> int:
        table = processes.all_processes()
        keepers = {pid for pid in table if is_keeper_of(pid, folder)}
        # A process that a keeper is just starting still has the keeper's command line.
        return len([pid for pid in keepers if table[pid].parent not in keepers])


def is_keeper_of(pid: int, folder: RunFolder) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    return "cordee.control.keeper" in words and str(folder.root) in words


class SlurmSite(SchedulerSite):
    """What the fake Slurm and the real one share: runs, and the calls that were made.

    Attributes:
        state: the folder in which calls are noted and switches lie.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.job, self.runs = write_job(folder), folder / "runs"
        self.state, self.bin = folder / "state", folder / "bin"
        self.state.mkdir()
        self.bin.mkdir()
        monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(folder))
        (folder / "site.toml").write_text('scheduler = "slurm"\n[partitions.normal]\ndefault = true\ncores = 8\n')

    def submitter(self) -> Submitter:
        return submitter("slurm")

    def run(self) -> Placeable:
        prepared = prepare(str(self.job), "site", {}, self.runs)
        return create_run(prepared), prepared.plan.document()

    def refused(self) -> Placeable:
        folder, plan = self.run()
        plan["steps"][0]["request"]["scheduler"]["partition"] = "nosuch"
        script = self.submitter().script(folder, plan)
        (folder.submit / self.submitter().script_name).write_text(script)
        return folder, plan

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        (self.state / "lose-answer").touch()
        yield
        assert not (self.state / "lose-answer").exists()

    def commands(self) -> list[list[str]]:
        path = self.state / "commands.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class FakeSlurmSite(SlurmSite):
    """Executables on PATH that replay what Slurm said.

    Args:
        accounting: works, is disabled (sacct says so), or is missing (there is no sacct).
    """

    patience_s = 10.0

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, accounting: str = "works") -> None:
        super().__init__(folder, monkeypatch)
        self.accounting = accounting
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        for name in COMMANDS:
            if name != "sacct" or accounting != "missing":
                (self.bin / name).symlink_to(FAKES / name)
        if accounting == "works":
            (self.state / "accounting").touch()
        monkeypatch.setenv("SLURM_CONF", str(self.state / "slurm.conf"))
        monkeypatch.setenv("FAKE_SLURM", str(self.state))
        without_slurm = [part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part) / "squeue").exists()]
        # What a real Slurm shares a folder with (Python, the shell) is reached by links, so that no real sacct is.
        tools = folder / "tools"
        tools.mkdir()
        (tools / "python3").symlink_to(sys.executable)
        for name in ("bash", "sh", "env"):
            (tools / name).symlink_to(str(shutil.which(name)))
        monkeypatch.setenv("PATH", os.pathsep.join([str(self.bin), str(tools), *without_slurm]))

    def jobs(self) -> dict[str, dict[str, Any]]:
        path = self.state / "jobs.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def held(self, folder: RunFolder) -> int:
        ours = [job for job in self.jobs().values() if job["comment"] == f"cordee:{folder.id}"]
        return len([job for job in ours if job["state"] in ("PENDING", "RUNNING")])

    def forget(self) -> None:
        """Let the controller forget all jobs, as it does some minutes after their end."""
        (self.state / "jobs.json").unlink()

    @contextmanager
    def _switched(self, name: str, text: str = "") -> Iterator[None]:
        (self.state / name).write_text(text)
        yield
        (self.state / name).unlink(missing_ok=True)

    def full(self) -> Any:
        return self._switched("full")

    @contextmanager
    def away(self) -> Iterator[None]:
        with self._switched("away"), self._switched("sacct-away"):
            yield

    def controller_away(self) -> Any:
        """Let only the controller be away, while the accounting answers."""
        return self._switched("away")

    def away_for_a_moment(self) -> Any:
        return self._switched("away", "3")


class RealSlurmSite(SlurmSite):
    """The disposable cluster; its commands are noted on their way."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: DisposableSlurm) -> None:
        super().__init__(folder, monkeypatch)
        self.cluster, self._monkeypatch = cluster, monkeypatch
        for name in COMMANDS:
            (self.bin / name).symlink_to(HERE / "recorder")
        monkeypatch.setenv("RECORDED_CALLS", str(self.state))
        monkeypatch.setenv("PATH", os.pathsep.join([str(self.bin), os.environ["PATH"]]))

    def commands(self) -> list[list[str]]:
        path = self.state / "calls"
        words = iter(path.read_text().split("\0")[:-1] if path.exists() else [])
        return [[next(words) for _ in range(int(count))] for count in words]

    def held(self, folder: RunFolder) -> int:
        lines = self.cluster.command("squeue", "--noheader", "--format=%T %k").splitlines()
        return lines.count(f"PENDING cordee:{folder.id}") + lines.count(f"RUNNING cordee:{folder.id}")

    @contextmanager
    def full(self) -> Iterator[None]:
        for node in self.cluster.node_names:
            self.cluster.drain(node, "full")
        yield
        for node in self.cluster.node_names:
            self.cluster.resume(node)

    @contextmanager
    def away(self) -> Iterator[None]:
        self.cluster.stop_controller()
        with self._monkeypatch.context() as changed:
            changed.setenv("SLURM_CONF", self.cluster.impatient()["SLURM_CONF"])
            yield
        self.cluster.start_controller()

    @contextmanager
    def away_for_a_moment(self) -> Iterator[None]:
        self.cluster.stop_controller()
        back = threading.Thread(target=lambda: (time.sleep(AWAY_S), self.cluster.start_controller()))
        back.start()
        yield
        back.join()


class RealCondorSite(SchedulerSite):
    """The disposable pool; its commands are noted on their way."""

    mark = 'CordeeRun = "{run}"'
    patience_s = 120.0

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, pool: DisposablePool) -> None:
        self.job, self.runs = write_job(folder), folder / "runs"
        self.pool, self._monkeypatch = pool, monkeypatch
        self._calls, bin_ = folder / "state", folder / "bin"
        self._calls.mkdir()
        bin_.mkdir()
        for name in ("condor_submit", "condor_q", "condor_history", "condor_rm"):
            (bin_ / name).symlink_to(HERE / "recorder")
        monkeypatch.setenv("RECORDED_CALLS", str(self._calls))
        monkeypatch.setenv("PATH", os.pathsep.join([str(bin_), os.environ["PATH"]]))

    def submitter(self) -> Submitter:
        return submitter("htcondor")

    def run(self) -> Placeable:
        prepared = prepare(str(self.job), "htcondor", {}, self.runs)
        return create_run(prepared), prepared.plan.document()

    def refused(self) -> Placeable:
        folder, plan = self.run()
        plan["steps"][0]["request"]["scheduler"]["requirements"] = "(((("
        (folder.submit / self.submitter().script_name).write_text(self.submitter().script(folder, plan))
        return folder, plan

    def commands(self) -> list[list[str]]:
        path = self._calls / "calls"
        words = iter(path.read_text().split("\0")[:-1] if path.exists() else [])
        return [[next(words) for _ in range(int(count))] for count in words]

    def held(self, folder: RunFolder) -> int:
        constraint = f'CordeeRun == "{folder.id}" && (JobStatus == 1 || JobStatus == 2)'
        return len(self.pool.command("condor_q", "-constraint", constraint, "-af", "ClusterId").split())

    @contextmanager
    def full(self) -> Iterator[None]:
        for machine in self.pool.machine_names:
            self.pool.kill_machine(machine)
        yield
        for machine in self.pool.machine_names:
            self.pool.start_machine(machine)

    @contextmanager
    def away(self) -> Iterator[None]:
        with self._monkeypatch.context() as changed:
            changed.setenv("_CONDOR_SCHEDD_HOST", "nobody@127.0.0.1")
            yield

    @contextmanager
    def away_for_a_moment(self) -> Iterator[None]:
        self.pool.kill_schedd()
        yield

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        (self._calls / "lose-answer").touch()
        yield
        assert not (self._calls / "lose-answer").exists()
