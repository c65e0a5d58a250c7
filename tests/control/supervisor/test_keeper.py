"""What a keeper starts: nothing lives that the next keeper would not find."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cordee.control.keeper import Kept
from cordee.core.errors import CordeeError
from cordee.machine.processes.tree import all_processes
from cordee.testing.patience import wait_until

LIVES = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(600)"
# Is killed while it writes who it has started.
KEEPER = """
import os, signal, sys
from pathlib import Path
from cordee.control import keeper
keeper.write_atomically = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
keeper.Kept("supervisor", sys.argv[1:], Path("record.json"), Path("log")).start(dict(os.environ))
"""


def running(mark) -> list[int]:
    """Return the processes that have a mark on their command line."""
    found = []
    for pid, process in all_processes().items():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as command:
                found += [pid] if os.fsencode(mark) in command.read() and process.state != "Z" else []
        except OSError:
            continue
    return found


def test_a_process_begins_once_it_is_recorded(tmp_path):
    began = tmp_path / "began"
    kept = Kept("supervisor", [sys.executable, "-c", LIVES, str(began)], tmp_path / "record.json", tmp_path / "log")
    kept.start(dict(os.environ))
    try:
        assert wait_until(began.exists)
        assert running(began) == [kept.known["pid"]]
        assert kept.alive()
    finally:
        kept.kill()
    assert wait_until(lambda: not kept.alive())
    os.waitpid(kept.known["pid"], 0)


def test_what_a_killed_keeper_has_not_recorded_ends_and_does_nothing(tmp_path):
    began = tmp_path / "began"
    command = [sys.executable, "-c", KEEPER, sys.executable, "-c", LIVES, str(began)]
    killed = subprocess.run(command, cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert wait_until(lambda: not running(began))
    assert not began.exists()


def test_a_record_that_the_disk_does_not_take_lets_nothing_begin(tmp_path):
    began = tmp_path / "began"
    record = tmp_path / "missing" / "record.json"
    kept = Kept("supervisor", [sys.executable, "-c", LIVES, str(began)], record, tmp_path / "log")
    with pytest.raises((OSError, CordeeError)):
        kept._start(dict(os.environ))
    assert wait_until(lambda: not running(began))
    assert not began.exists()
