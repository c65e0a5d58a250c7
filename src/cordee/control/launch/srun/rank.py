"""One rank as srun starts it: `python -m cordee.control.launch.srun.rank PLACES ATTEMPT`, once for each rank.

It meets the agent of its node, gets the rank's command and environment, runs it as its only child, and tells the agent
the child's pid and how it ended. The rank's output goes straight to the agent. When the agent is gone, or this process
is, the rank and all that it started are killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Optional

from cordee.control.launch.srun.handover import ERR, OUT, WORD, Handover, LastWord, RankOrder, Runs, Word, line_of
from cordee.core.errors import WireError
from cordee.core.words import signal_name
from cordee.machine.node_folder import folders_of
from cordee.machine.processes import tree as processes
from cordee.machine.processes.parent import die_with_parent
from cordee.machine.tasks.commands import find_command, not_started

_LONGEST_WAIT_S = 120.0
_PAUSE_S = 0.02
_LOOK_S = 0.5
_NOT_MET = 125
_OF_THE_STEP = ("SLURM_", "SLURMD_", "PMI_", "PMI2_", "PMIX_")
_FOR_THE_RANK = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGXCPU,
    signal.SIGCHLD,
)


def main() -> int:
    """Run one rank and return its exit code, 128 and the signal's number when a signal ended it."""
    places, attempt = Path(sys.argv[1]), int(sys.argv[2])
    node, rank = os.environ["SLURMD_NODENAME"], int(os.environ["SLURM_PROCID"])
    processes.become_subreaper()
    meetings: list[Handover] = []

    def look() -> list[Handover]:
        """The first node's agent says where it meets its ranks; another node's had to go elsewhere if the name was taken."""
        folders = folders_of(places.name, node, beside=places.parent.parent)
        meetings[:] = [Handover(folder, attempt, rank) for folder in folders]
        return meetings

    try:
        found = _wait_for_order(look)
        if found is None:
            there = sorted({other for meeting in meetings for other in meeting.others()})
            if not any(meeting.is_called_off() for meeting in meetings):
                print(f"cordee: no agent waits for rank {rank} on {node}, only for {there}", file=sys.stderr)
            return _NOT_MET
        return _run(*found)
    except (OSError, WireError) as error:
        what = "does not understand" if isinstance(error, WireError) else "lost"
        print(f"cordee: rank {rank} on {node} {what} its agent: {error}", file=sys.stderr)
        for meeting in meetings:
            meeting.remove()
        return _NOT_MET


def _wait_for_order(look: Callable[[], list[Handover]]) -> Optional[tuple[Handover, RankOrder]]:
    """Return where the rank's order lies, and the order; None when it is called off or nobody gave one in time."""
    deadline = time.monotonic() + _LONGEST_WAIT_S
    due = 0.0
    while time.monotonic() < deadline:
        if time.monotonic() >= due:
            meetings, due = look(), time.monotonic() + _LOOK_S
        if any(meeting.is_called_off() for meeting in meetings):
            return None
        for meeting in meetings:
            order = meeting.read_order()
            if order is not None:
                return meeting, order
        time.sleep(_PAUSE_S)
    return None


def _run(meeting: Handover, order: RankOrder) -> int:
    word, out, err = (_open(meeting.fifo(name)) for name in (WORD, OUT, ERR))
    for number in _FOR_THE_RANK:
        signal.signal(number, lambda number, frame: None)
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        child = _start(order, out, err)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        code, text = not_started(error, order.argv[0], order.cwd)
        _say(word, LastWord(code, None, text))
        return code
    os.close(out)
    os.close(err)
    try:
        _say(word, Runs(child, os.getpid()))
        status = _wait(child, word, wakes)
    except OSError:
        processes.kill_all(processes.of_task(child, order.env[processes.MARKER]))
        raise
    finally:
        _kill_left_behind()
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    name = signal_name(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None
    _say(word, LastWord(None if name else code, name, ""))
    return code


def _open(fifo: str) -> int:
    """Open a FIFO that the agent reads; without a reader it fails at once instead of waiting."""
    descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    return descriptor


def _start(order: RankOrder, out: int, err: int) -> int:
    """Start the rank and return its pid; what srun set for this task (ids, the way to its process manager) stays."""
    own = {key: value for key, value in os.environ.items() if key.startswith(_OF_THE_STEP) or not order.whole}
    env = {**own, **{key: value for key, value in order.env.items() if not key.startswith(_OF_THE_STEP)}}
    parent = os.getpid()

    def prepare() -> None:
        os.setpgid(0, 0)
        die_with_parent(parent)

    process = subprocess.Popen(
        find_command(order.argv, env, order.cwd),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env=env,
        cwd=order.cwd,
        close_fds=False,
        preexec_fn=prepare,
    )
    process.returncode = 0
    return process.pid


def _say(word: int, what: Word) -> None:
    os.write(word, line_of(what))


def _wait(child: int, word: int, wakes: int) -> int:
    """Wait for the rank and return its wait status.

    Raises:
        BrokenPipeError: the agent is gone.
    """
    poll = select.poll()
    poll.register(wakes, select.POLLIN)
    poll.register(word, 0)
    while True:
        status = _reap(child)
        if status is not None:
            return status
        for descriptor, event in poll.poll():
            if descriptor == word:
                raise BrokenPipeError(f"nobody reads its words any more ({event})")
            os.read(wakes, 4096)


def _reap(child: int) -> Optional[int]:
    """Reap every child that has ended, orphans of the rank too; return the rank's wait status if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _kill_left_behind() -> None:
    """Kill everything below this process, which is where the orphans of the rank end up."""
    while True:
        _reap(0)
        table = processes.all_processes()
        below = processes.descendants([os.getpid()], table)
        if not processes.kill_all(pid for pid in below if table[pid].state not in ("Z", "X", "D")):
            return
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
