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
from cordee.backends.htcondor.node.home import CheckpointsHome, WayHome
from cordee.backends.htcondor.node.sandbox import Sandbox
from cordee.control.keeper import Keeper
from cordee.core.errors import CordeeError
from cordee.core.parts import load
from cordee.machine.processes import tree as processes
from cordee.runs import checkpoint
from cordee.runs.folder import RunFolder, say
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
    """

    def __init__(self, folder: RunFolder, here: CondorStart) -> None:
        super().__init__(folder, [here.node], here.node)
        self._here = here
        self._leaving = False
        self._told: set[int] = set()

    def _heed_signals(self) -> None:
        super()._heed_signals()
        signal.signal(signal.SIGTERM, self._leave_soon)

    def _leave_soon(self, *_: object) -> None:
        self._leaving = True
        self._waking.called = True

    def _keep(self) -> bool:
        kept = super()._keep()
        pid = self.supervisor.known.get("pid", 0)
        if self._leaving and pid not in self._told and self.supervisor.alive():
            self._told.add(pid)
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
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the supervisor may call before it is waited for
    sandbox = Sandbox(scratch, parser.parse_args().run)
    _set_environment(scratch, here)
    try:
        sandbox.arrive(here)
        return _run(sandbox.folder, here)
    except (CordeeError, OSError, ValueError, KeyError) as error:
        say(f"cordee: the run cannot begin on {here.node}: {type(error).__name__}: {error}")
        return EXIT_NO_RUN
    finally:
        with suppress(OSError):
            sandbox.leave()


def _run(folder: RunFolder, here: CondorStart) -> int:
    keeper = FirstProcess(folder, here)
    way_home = WayHome(folder, lambda: JournalFollower(folder, keep=False).read())
    step, timeouts = keeper.plan.step, keeper.plan.timeouts
    finder = load(part_in(keeper.plan.node_parts, checkpoint.PART))(
        step.checkpoint, folder.id, folder.control, timeouts.orphan_s, timeouts.kill_s
    )
    checkpoints = CheckpointsHome(folder, finder)
    way_home.start()
    checkpoints.start()
    keeper.serve()
    checkpoints.close()
    way_home.close(_LAST_WORDS_S)
    processes.sweep(f"{folder.id}/")
    ended = JournalFollower(folder, keep=False).read().ended
    return 0 if ended else EXIT_AGAIN


def _set_environment(scratch: Path, here: CondorStart) -> None:
    """Set what a job on HTCondor is not given, and programs count on."""
    environ = os.environ
    environ.setdefault("HOME", str(scratch))
    environ.setdefault("PATH", _PATH)
    own: Optional[str] = os.path.dirname(sys.executable)
    if own and own not in environ["PATH"].split(os.pathsep):
        environ["PATH"] = os.pathsep.join([own, environ["PATH"]])
    environ[STARTED] = str(time.time())


if __name__ == "__main__":
    sys.exit(main())
