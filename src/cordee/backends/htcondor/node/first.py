"""The first process of a job on HTCondor: it makes the run at home here, keeps its supervisor and agent alive, and sends it back.

HTCondor signals this process alone. At an eviction it has the supervisor end the segment, so that ranks save; what is in the run's
folder when this process ends is kept for the next start.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Optional

from cordee.backends.htcondor.node.ads import EXIT_AGAIN, STARTED, CondorStart
from cordee.backends.htcondor.node.chirp import Chirp
from cordee.backends.htcondor.node.home import CheckpointsHome, WayHome
from cordee.backends.htcondor.node.sandbox import AGAIN, EVICTED, Sandbox
from cordee.control.keeper import Keeper
from cordee.core.errors import CordeeError
from cordee.core.parts import load
from cordee.machine.processes import tree as processes
from cordee.runs import checkpoint
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import client_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.plan import part_in
from cordee.runs.state import RunState

EXIT_NO_RUN = 71
_LAST_WORDS_S = 3.0
_PATH = "/usr/local/bin:/usr/bin:/bin"


class FirstProcess(Keeper):
    """Keeps a run's processes alive until the run, or this start of its job, is over.

    Args:
        folder: the run's folder.
        here: this start.
        told: receives the signals by which HTCondor wants the machine back.
    """

    def __init__(self, folder: RunFolder, here: CondorStart, told: list[int]) -> None:
        super().__init__(folder, [here.node], here.node)
        self._here, self._told = here, told
        self._passed_on: set[int] = set()

    def _heed_signals(self) -> None:
        super()._heed_signals()
        signal.signal(signal.SIGTERM, self._leave_soon)

    def _leave_soon(self, number: int, _: object) -> None:
        self._told.append(number)
        self._waking.called = True

    def _keep(self) -> bool:
        kept = super()._keep()
        pid = self.supervisor.known.get("pid", 0)
        if self._told and pid not in self._passed_on and self.supervisor.alive():
            self._passed_on.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return kept

    def _is_over(self, state: RunState) -> bool:
        segment_is = state.state == "queued" and bool(state.chain) and state.allocation == self._here.document()
        return state.ended or segment_is


def main() -> int:
    """Run a job: `python -m cordee.backends.htcondor.node.first --run RUN`, in its scratch folder."""
    parser = argparse.ArgumentParser(prog="cordee.backends.htcondor.node.first")
    parser.add_argument("--run", required=True)
    scratch = Path(os.environ.get("_CONDOR_SCRATCH_DIR") or ".").resolve()
    here = CondorStart.here()
    if here is None:
        say("cordee: this is no job of HTCondor")
        return EXIT_NO_RUN
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the supervisor may call before it is waited for
    sandbox = Sandbox(scratch, parser.parse_args().run)
    _set_environment(scratch, here)
    code = EXIT_NO_RUN
    try:
        sandbox.arrive(here, _fetch)
        code = EXIT_AGAIN if told else _run(sandbox.folder, here, told)
    except (CordeeError, OSError, ValueError, KeyError) as error:
        say(f"cordee: the run cannot begin on {here.node}: {type(error).__name__}: {error}")
    finally:
        with suppress(OSError):
            sandbox.leave(here, None if code == 0 else EVICTED if told else AGAIN)
    return code


def _run(folder: RunFolder, here: CondorStart, told: list[int]) -> int:
    before = JournalFollower(folder, keep=False).read()
    if before.state == "cancelled" and not before.segments:  # before HTCondor made it a job
        return 0
    _undo_an_end_that_did_not_come_home(folder, here)
    keeper = FirstProcess(folder, here, told)
    way_home = WayHome(folder, lambda: JournalFollower(folder, keep=False).read())
    step, timeouts = keeper.plan.step, keeper.plan.timeouts
    finder = load(part_in(keeper.plan.node_parts, checkpoint.PART))(
        step.checkpoint, folder.id, folder.control, timeouts.orphan_s, timeouts.kill_s
    )
    checkpoints = CheckpointsHome(folder, finder, here.turn)
    way_home.start()
    checkpoints.start()
    keeper.serve()
    checkpoints.close()
    way_home.close(_LAST_WORDS_S)
    processes.sweep(f"{folder.id}/")
    ended = JournalFollower(folder, keep=False).read().ended
    return 0 if ended else EXIT_AGAIN


def _undo_an_end_that_did_not_come_home(folder: RunFolder, here: CondorStart) -> None:
    """Have a run go on that had ended: the job would not be here if what it made were at home."""
    if JournalFollower(folder, keep=False).read().ended:
        client_journal(folder.journal, here.node).append("resume_requested", by="the scheduler", reason="not_home")


def _fetch(path: str, target: Path) -> None:
    chirp = Chirp()
    try:
        chirp.fetch(path, target)
    finally:
        chirp.close()


def _set_environment(scratch: Path, here: CondorStart) -> None:
    """Set what a job on HTCondor is not given, and programs count on."""
    environ = os.environ
    if not os.access(environ.get("HOME", ""), os.W_OK):  # an image may have none for whoever this is
        environ["HOME"] = str(scratch)
    environ.setdefault("PATH", _PATH)
    own: Optional[str] = os.path.dirname(sys.executable)
    if own and own not in environ["PATH"].split(os.pathsep):
        environ["PATH"] = os.pathsep.join([own, environ["PATH"]])
    environ[STARTED] = str(time.time())


if __name__ == "__main__":
    sys.exit(main())
