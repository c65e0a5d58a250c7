from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cordee.machine.processes.tree import read_process
from cordee.telemetry.node.record.process_end import Followed, ProcessEnding

WAIT = "import sys, os; sys.stdin.read(); "


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        ("sys.exit(7)", ProcessEnding(exit_code=7)),
        ("", ProcessEnding(exit_code=0)),
        ("os.kill(os.getpid(), 15)", ProcessEnding(signal=signal.SIGTERM)),
    ],
)
@pytest.mark.parametrize("reaped", [True, False])
def test_the_end_of_a_process_that_is_nobodys_child_here_is_seen(last, ending, reaped):
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", WAIT + last], stdin=subprocess.PIPE)
    followed = Followed(child.pid, read_process(child.pid).start_ticks)
    assert not followed.ended
    child.stdin.close()
    if reaped:
        child.wait()
    else:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert followed.ended
    # Before Linux 6.15 nothing is kept of a process for which its parent has waited.
    assert followed.ending() == ending or (reaped and followed.ending() == ProcessEnding())
    child.wait()
    followed.close()


def test_another_process_with_the_same_number_is_not_followed():
    followed = Followed(os.getpid(), read_process(os.getpid()).start_ticks - 1)
    assert followed.ended
    assert followed.ending() == ProcessEnding()


def test_without_pidfd_the_end_is_asked_for(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", WAIT], stdin=subprocess.PIPE)
    followed = Followed(child.pid, read_process(child.pid).start_ticks)
    assert followed.descriptor is None
    assert not followed.ended
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert followed.ended
    assert followed.ending() == ProcessEnding(exit_code=0)
    child.wait()
    assert followed.ending() == ProcessEnding()
