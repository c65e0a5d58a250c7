"""Workers share jobs; one that is killed, wherever it is, takes nobody with it."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
from types import FrameType
from typing import Any

import pytest

from cordee.core.errors import DataError
from cordee.systems.data.pack._base import Tell
from cordee.systems.data.pack.workers import Jobs, run_all

FORK = multiprocessing.get_context("fork")
HANGS_S = 60


def take_all(jobs: Jobs, add: Tell) -> list[int]:
    found = []
    while (job := jobs.take()) is not None:
        found.append(job)
        add(1, job)
    return found


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_job_is_taken_once(workers, threads):
    told = []
    given = run_all(range(7, 2000), take_all, workers, threads, lambda samples, size: told.append((samples, size)))
    assert sorted(itertools.chain(*given)) == list(range(7, 2000))
    assert told[-1] == (1993, sum(range(7, 2000)))


def killed_in_take(step: int) -> int:
    """Kill one of two workers at a step of the interpreter while it takes a job; return how many steps it had come to."""
    come = FORK.RawValue("q", 0)
    first = FORK.Lock()

    def work(jobs: Jobs, add: Tell) -> None:
        if not first.acquire(block=False):
            take_all(jobs, add)
            return

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            if (
                frame.f_code is not Jobs.take.__code__
                and frame.f_back
                and frame.f_back.f_code is not Jobs.take.__code__
            ):
                return None
            frame.f_trace_opcodes = True
            come.value += 1
            if come.value > step:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        jobs.take()
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        os.setsid()
        with pytest.raises(DataError, match="ended by signal 9"):
            run_all(range(100), work, 2, False, lambda samples, size: None)

    process = FORK.Process(target=run)
    process.start()
    process.join(HANGS_S)
    hangs = process.is_alive()
    if hangs:
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    assert not hangs, f"killed at step {step}, and the others wait"
    assert process.exitcode == 0
    return come.value


@pytest.mark.usefixtures("real")
def test_a_worker_killed_while_it_takes_a_job_does_not_make_the_others_wait():
    assert next(step for step in itertools.count() if killed_in_take(step) <= step) > 8


HANGING = """
import os, time
from cordee.systems.data.pack.workers import run_all

def work(jobs, add):
    os.write(1, f"{os.getpid()}\\n".encode())  # one write: two workers' lines never mix
    time.sleep(1000)  # as storage that does not answer

run_all(range(2), work, 2, False, lambda samples, size: None)
"""


def test_workers_of_a_process_that_is_killed_end_though_they_hang():
    with subprocess.Popen([sys.executable, "-c", HANGING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = [int(process.stdout.readline()) for _ in range(2)]
        process.kill()
        assert process.stdout.read() == "", "a worker that lives would hold it open"
    assert len(set(workers)) == 2
