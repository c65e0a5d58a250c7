"""A real run under test: written, started, watched through its journal, and ended whatever happens."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from cordee.backends import slurm
from cordee.backends.slurm.node.commands import COMMENT_PREFIX, ENDED_STATES, SlurmError, my_jobs, run_command
from cordee.control.identity import living_record
from cordee.control.keeper_start import keeper_record
from cordee.control.supervisor.ownership import Ownership
from cordee.core.backends import HERE
from cordee.job.submit import submitter
from cordee.job.submit.prepare import Prepared, create_run, prepare
from cordee.machine.processes import tree as processes
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.state import RunState, replay
from cordee.testing.patience import PatientWait

_POLL_S = 0.03
_GONE_S = 30.0


@contextmanager
def no_document_side(folder: RunFolder) -> Iterator[None]:
    """Have what is started meanwhile find Cordée in the run's own copy of the node side, or none that can be imported."""
    absent = folder.control / "absent" / "cordee"
    absent.mkdir(parents=True, exist_ok=True)
    (absent / "__init__.py").write_text("raise SystemExit(1)\n")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(absent.parent), *([before] if before else [])])
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class LocalRun:
    """One run on this machine.

    Args:
        job: a folder with a cordee.toml.
        runs: the folder that holds runs.
        reported: whether the run is sealed and reported at its end; without, it ends as where the supervisor's node has no
            document side, which takes half as long, and whoever reads it does the rest.
        flags: as `cordee run --set`.
    """

    cluster = HERE

    def __init__(self, job: Path, runs: Path, *, reported: bool = True, **flags: Any) -> None:
        dotted = {key.replace("__", "."): value for key, value in flags.items()}
        self.prepared: Prepared = prepare(str(job), self.cluster, dotted, runs)
        self.prepared.require_valid()
        self.folder: RunFolder = create_run(self.prepared)
        self.place = submitter(self.cluster)
        self._reported = reported

    def __enter__(self) -> LocalRun:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def start(self) -> None:
        """Submit it."""
        with nullcontext() if self._reported else no_document_side(self.folder):
            self.place.submit(self.folder, self.prepared.plan.document())

    def end(self) -> None:
        """Kill whatever is left of it, twice: a keeper killed in between may have started something."""
        for _ in range(2):
            self.place.cancel(self.folder)
        self._until_gone()

    def _until_gone(self) -> None:
        """Wait until the kernel has had its turn with what was killed, but not for ever."""
        patience = PatientWait(_GONE_S)
        while self.processes() and not patience.over():
            time.sleep(_POLL_S)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the journal's events so far, of one kind or all."""
        return [event for event in read_journal(self.folder.journal) if name in (None, event["event"])]

    @property
    def state(self) -> RunState:
        """The state now."""
        return replay(read_journal(self.folder.journal), self.folder.id)

    def wait(self, condition: Callable[[RunState], Any], seconds: float = 240.0) -> RunState:
        """Return the first state for which `condition` is true.

        Raises:
            TimeoutError: it did not become true; the message has the state and the processes' last words.
        """
        patience, journal = PatientWait(seconds), JournalFollower(self.folder, keep=False)
        while not condition(state := journal.read()):
            if patience.over():
                raise TimeoutError(f"not within {patience.seconds:.0f} s: {state}\n{self._last_words()}")
            time.sleep(_POLL_S)
        return state

    def _last_words(self) -> dict[str, str]:
        return {path.name: path.read_text(errors="replace")[-800:] for path in self.folder.control.glob("*.log")}

    def wait_end(self, seconds: float = 240.0) -> RunState:
        """Return the last state, once no process of the run is left.

        Raises:
            TimeoutError: it did not end, or something of it is still there.
        """
        state = self.wait(lambda state: state.ended, seconds)
        self.wait(lambda _: not self._held(), seconds)
        return state

    def _held(self) -> bool:
        return self.place.active(self.folder)

    def wait_training(self, attempt: int = 1, seconds: float = 240.0) -> RunState:
        """Return the state once all ranks of an attempt run."""
        return self.wait(
            lambda state: (
                state.attempt >= attempt and state.ranks and all(rank.status == "running" for rank in state.ranks)
            ),
            seconds,
        )

    def pid(self, part: str) -> int:
        """Return the pid of `keeper`, `supervisor`, `agent local-0` or `rank 0`; under Slurm also of `script`, the batch
        script, and `srun`, which started the agents for it."""
        kind, _, name = part.partition(" ")
        if kind == "rank":
            return next(int(rank.pid or 0) for rank in self.state.ranks if rank.rank == int(name))
        record = self._record(kind, name)
        if not record:
            raise ProcessLookupError(f"no {part} lives")
        return int(record["pid"])

    def _record(self, kind: str, name: str) -> dict[str, Any]:
        if kind == "keeper":
            return keeper_record(self.folder)
        return living_record(self.folder.control / (f"agent-{name}.json" if kind == "agent" else "supervisor.json"))

    def kill(self, part: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a part of the run."""
        os.kill(self.pid(part), number)

    def processes(self) -> list[int]:
        """Return the pids that carry the run's marker."""
        return [process.pid for process in processes.with_marker(f"{self.folder.id}/")]

    def output(self, rank: int | None = None) -> bytes:
        """Return what the ranks printed so far."""
        from cordee.runs.logframes import read_frames, split_name

        logs = sorted(self.folder.logs.glob("*.log"), key=lambda path: split_name(path.name)[::-1])
        frames = [frame for path in logs for frame in read_frames(path)]
        return b"".join(frame.data for frame in frames if rank in (None, frame.rank))


class SlurmRun(LocalRun):
    """One run on the Slurm that the environment leads to, whose nodes are all on this machine."""

    cluster = slurm.BACKEND.name

    @property
    def job(self) -> str:
        """The newest job of the run."""
        return str(self.state.job)

    def end(self) -> None:
        """Cancel its jobs and kill whatever is left of it."""
        self.place.cancel(self.folder)
        processes.sweep(f"{self.folder.id}/")
        self._until_gone()

    def _last_words(self) -> dict[str, str]:
        printed = {path.name: path.read_text(errors="replace")[-800:] for path in self.folder.submit.glob("*.out")}
        printed |= {path.name: path.read_text(errors="replace")[-800:] for path in self.folder.control.glob("*.json")}
        for asked in (["show", "job", str(self.job)], ["show", "node", "--oneliner"]):
            try:
                printed[" ".join(asked)] = run_command(["scontrol", *asked])
            except SlurmError as error:
                printed[" ".join(asked)] = error.text
        return {**super()._last_words(), **printed}

    def _held(self) -> bool:
        comment = COMMENT_PREFIX + self.folder.id
        return any(job.comment == comment and job.state not in ENDED_STATES for job in my_jobs())

    def _record(self, kind: str, name: str) -> dict[str, Any]:
        if kind == "agent":
            return super()._record(kind, name)
        if kind == "srun":
            return {"pid": self._srun(self.pid("script"))}
        epochs = self.folder.control / "epochs"
        record = living_record(epochs / str(Ownership(epochs).newest()) / "owner.json")
        if kind == "script" and record:
            supervisor = processes.read_process(record["pid"])
            return {"pid": supervisor.parent} if supervisor else {}
        return record

    @staticmethod
    def _srun(script: int) -> int:
        """Return the pid of the srun below a batch script's shells."""
        below, everything = {script}, processes.all_processes()
        while below:
            below = {process.pid for process in everything.values() if process.parent in below}
            named = [pid for pid in below if _name(pid) == "srun"]
            if named:
                return named[0]
            below = {pid for pid in below if _name(pid) in ("sh", "bash", "slurm_script")}
        raise ProcessLookupError("no srun lives")


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
