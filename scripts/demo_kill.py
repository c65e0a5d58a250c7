"""Kills rank 1 of the next run with `kill -9`, between two checkpoints; exits with 1 where there was none to kill.

Part of `make demo`.
"""

import os
import signal
import sys
import time
from pathlib import Path

from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay

RUNS = Path(os.environ.get("CORDEE_RUNS") or "runs")
AFTER_STEPS = 110
PATIENCE_S = 1800.0


def main() -> None:
    before = runs()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        time.sleep(0.2)
        for folder in sorted(runs() - before):
            state = replay(read_journal(RunFolder(folder).journal))
            if kill(state):
                return
            if state.ended:
                sys.exit(1)
    sys.exit(1)


def runs() -> set[Path]:
    return {path.parent for path in RUNS.glob("*/journal")}


def kill(state: RunState) -> bool:
    """Kill rank 1 once it has done enough steps; returns whether that was done."""
    rank = state.rank(1)
    if rank is None or rank.pid is None or rank.status != "running" or (state.step or 0) < AFTER_STEPS:
        return False
    os.kill(rank.pid, signal.SIGKILL)
    print(f"demo: kill -9 of rank 1 (pid {rank.pid}) after step {state.step}", file=sys.stderr, flush=True)
    return True


if __name__ == "__main__":
    main()
