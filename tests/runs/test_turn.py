"""Turns at a shared folder: of many that find a stale lock one gets it, and a disk that refuses leaves no two holders."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading

import pytest

from cordee.runs.turn import STALE_S, Turn, turn
from support.clocks import give_clock
from support.disks import FaultyDisk

GONE = 2**22 - 3  # no process has this number


def left_behind(folder, number=1, **holder):
    path = folder / f".lock-{number}"
    path.write_text(json.dumps({"host": socket.gethostname(), "pid": GONE, **holder}))
    return path


def test_of_many_takers_of_a_stale_lock_one_gets_it(tmp_path):
    for attempt in range(60):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        left_behind(folder)
        start, done, counts, guard = threading.Barrier(8), threading.Barrier(8), [0, 0, 0], threading.Lock()

        def take(folder=folder, start=start, done=done, counts=counts, guard=guard):
            start.wait()
            for _ in range(6):
                with turn(folder, ".lock") as mine:
                    if mine is not None:
                        with guard:
                            counts[0] += 1
                            counts[1] = max(counts[1], counts[0])
                            counts[2] += 1
                        os.listdir(folder)
                        with guard:
                            counts[0] -= 1
            done.wait()

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts[1] == 1
        assert counts[2] >= 1


def test_who_looked_before_others_came_and_went_backs_out(tmp_path):
    left_behind(tmp_path, 5)
    slow = Turn(tmp_path, ".lock")
    looked = slow._newest
    slow._newest = lambda: 5 if not (tmp_path / "looked").exists() else looked()
    slow._is_free = lambda number: others_come_and_go()

    def others_come_and_go():
        for _ in range(2):
            with turn(tmp_path, ".lock") as mine:
                assert mine is not None
        (tmp_path / "looked").touch()
        return True

    assert not slow.take()
    assert [path.name for path in tmp_path.glob(".lock-*")] == [".lock-7"]


def test_the_lock_of_a_living_holder_stays(tmp_path):
    with turn(tmp_path, ".lock") as first, turn(tmp_path, ".lock") as second:
        assert first is not None
        assert second is None
    with turn(tmp_path, ".lock") as third:
        assert third is not None


def test_a_holder_on_another_host_is_gone_when_it_is_silent_by_the_clock_of_the_file_system(tmp_path, monkeypatch):
    path = left_behind(tmp_path, host="another")
    give_clock(monkeypatch, "cordee.runs", time=lambda: 4_000_000_000.0)  # this host's clock is ahead
    with turn(tmp_path, ".lock") as mine:
        assert mine is None
    os.utime(path, ns=(0, path.stat().st_mtime_ns - int((STALE_S + 10) * 1e9)))
    with turn(tmp_path, ".lock") as mine:
        assert mine is not None


@pytest.mark.parametrize("call", ["open", "write", "close", "listdir", "replace", "unlink"])
def test_a_disk_that_refuses_leaves_a_lock_that_can_be_taken_later_and_never_two_holders(tmp_path, call):
    disk = FaultyDisk()
    disk.fail(call, errno.EIO)
    first = Turn(tmp_path, ".lock", disk)
    try:
        held = first.take()
    except OSError:
        held = False
    other = Turn(tmp_path, ".lock")
    assert not (held and other.take())
    first.leave()
