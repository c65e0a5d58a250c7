"""Several workers that share numbered jobs: forked processes, or threads where a client does not survive a fork."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from typing import Any

from cordee.core.errors import DataError
from cordee.machine.processes.parent import die_with_parent
from cordee.systems.data.pack._base import Tell

_TELL_EVERY_S = 0.2
_JOB_BYTES = 8

# What a worker does: called with the jobs that it shares with the others, and whom to tell what was added.
Work = Callable[["Jobs", Tell], Any]


class Jobs:
    """Numbers that workers take in turn until none is left.

    They stand in a file that has no name, and workers share one position in it, which the kernel moves on with each read:
    there is no lock that a killed worker could keep.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(array("q", numbers).tobytes())
            file.seek(0)
            self._shared = os.dup(file.fileno())

    def take(self) -> int | None:
        """Return the next job; None when there is none."""
        job = os.read(self._shared, _JOB_BYTES)
        return int.from_bytes(job, sys.byteorder, signed=True) if job else None

    def stop(self) -> None:
        """Leave the rest undone."""
        os.lseek(self._shared, 0, os.SEEK_END)

    def close(self) -> None:
        """Give the file back; the workers have ended."""
        os.close(self._shared)


def run_all(numbers: Sequence[int], work: Work, workers: int, threads: bool, tell: Tell) -> list[Any]:
    """Run all jobs on as many workers as are useful, and return what each gave; one worker is this thread itself.

    Args:
        tell: called here with the sums of what the workers add, about five times a second.

    Raises:
        Exception: what the first worker that failed raised; the others end after their current job.
    """
    workers = min(workers, len(numbers))
    jobs = Jobs(numbers)
    try:
        if workers <= 1:
            return _alone(jobs, work, tell)
        if threads:
            return _threads(jobs, work, workers, tell)
        return _processes(jobs, work, workers, tell)
    finally:
        jobs.close()


def _alone(jobs: Jobs, work: Work, tell: Tell) -> list[Any]:
    done = [0, 0]

    def add(samples: int, size: int) -> None:
        done[0] += samples
        done[1] += size
        tell(*done)

    return [work(jobs, add)]


def _threads(jobs: Jobs, work: Work, workers: int, tell: Tell) -> list[Any]:
    given: list[Any] = []
    done, lock = [0, 0], threading.Lock()

    def add(samples: int, size: int) -> None:
        with lock:
            done[0] += samples
            done[1] += size

    with ThreadPoolExecutor(workers) as pool:
        waiting = {pool.submit(work, jobs, add) for _ in range(workers)}
        try:
            while waiting:
                ended, waiting = wait(waiting, _TELL_EVERY_S, FIRST_EXCEPTION)
                tell(*done)
                given += [future.result() for future in ended]
        except BaseException:
            jobs.stop()
            raise
    return given


def _processes(jobs: Jobs, work: Work, workers: int, tell: Tell) -> list[Any]:
    context = multiprocessing.get_context("fork")
    given: list[Any] = []
    added = context.RawArray("q", 2 * workers)
    running: dict[Connection, Any] = {}
    try:
        for number in range(workers):
            here, there = context.Pipe(duplex=False)
            arguments = (work, jobs, added, number, there, os.getpid())
            process = context.Process(target=_worker, args=arguments, daemon=True)
            process.start()
            there.close()
            running[here] = process
        while running:
            for ended in wait_for(list(running), _TELL_EVERY_S):
                assert isinstance(ended, Connection)
                given.append(_given(ended, running.pop(ended)))
            tell(sum(added[::2]), sum(added[1::2]))
    finally:
        jobs.stop()
        for process in running.values():
            process.terminate()
            process.join()
    return given


def _given(ended: Connection, process: Any) -> Any:
    try:
        error, given = ended.recv()
    except (EOFError, OSError):  # nothing was answered, or a part of it
        process.join()
        raise DataError(
            f"a packing process was ended by signal {-process.exitcode}"
            if process.exitcode < 0
            else f"a packing process ended with code {process.exitcode}",
            next="the same command continues where it ended; with --workers 1 it needs less memory",
        ) from None
    process.join()
    if error is not None:
        raise error
    return given


def _worker(work: Work, jobs: Jobs, added: Any, number: int, answer: Connection, parent: int) -> None:
    die_with_parent()  # at once, also where storage that does not answer holds it
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C reaches the parent, which ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def add(samples: int, size: int) -> None:
        added[2 * number] += samples
        added[2 * number + 1] += size
        if os.getppid() != parent:
            os._exit(1)  # nobody waits for this any more, and a second call may begin

    try:
        given = work(jobs, add)
    except Exception as error:  # whatever it is, the parent tells it
        answer.send((error, None))
    else:
        answer.send((None, given))
