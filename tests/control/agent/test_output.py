"""What ranks print on its way to a slow disk: written together, waited for, and counted where it is given up."""

from __future__ import annotations

import threading

import pytest

from cordee.control.agent.output import OutputLog
from cordee.runs.logframes import LogReader, LogWriter


class Slow(LogWriter):
    """A file system on which every call takes its time, and one after the other is let through."""

    def __init__(self, path):
        super().__init__(path)
        self.calls = 0
        self.lets_through = threading.Semaphore(0)

    def _append(self, frame):
        self.calls += 1
        self.lets_through.acquire()
        super()._append(frame)


@pytest.fixture
def slow(tmp_path):
    return Slow(tmp_path / "n1-1.log")


def test_lines_that_wait_are_written_together(slow, tmp_path):
    log = OutputLog(slow, lambda full: None)
    for number in range(1000):
        log.write(0, 1, 1, b"line %d\n" % number)
    slow.lets_through.release(10)
    assert log.close(60.0, 60.0)
    assert slow.calls <= 10
    assert [line.data for line in LogReader(tmp_path).lines()] == [b"line %d" % number for number in range(1000)]
    assert (log.dropped_bytes, log.queued_bytes) == (0, 0)


def test_what_a_disk_does_not_take_in_time_is_counted(slow, tmp_path):
    log = OutputLog(slow, lambda full: None)
    log.write(0, 1, 1, b"RuntimeError: why it failed\n")
    assert not log.close(0.0, 0.0)
    assert log.dropped_bytes == len(b"RuntimeError: why it failed\n")
    slow.lets_through.release(10)


def test_a_disk_that_still_takes_something_is_waited_for(slow, tmp_path):
    log = OutputLog(slow, lambda full: None)
    for _ in range(8):
        log.write(0, 1, 1, b"x" * (1 << 20))
    log.write(0, 1, 1, b"\nlast\n")
    slow.lets_through.release(100)
    assert log.close(60.0, 60.0)
    assert next(line.data for line in LogReader(tmp_path).lines() if len(line.data) < 9) == b"last"


def test_many_pieces_of_output_that_only_fit_in_part_are_written_as_far_as_there_is_room(tmp_path, monkeypatch):
    writer = LogWriter(tmp_path / "n1-1.log")
    real, room = LogWriter._append, 400

    def append(self, frame):
        if self.size + len(frame) > room:
            raise OSError(28, "No space left on device")
        real(self, frame)

    monkeypatch.setattr(LogWriter, "_append", append)
    assert not writer.write_many([(0, 0, 1, b"%03d\n" % number, 0.0) for number in range(20)])
    written = [line.data for line in LogReader(tmp_path).lines()]
    assert written == [b"%03d" % number for number in range(len(written))]
    assert len(written) == room // 32
    assert writer.dropped_bytes == 4 * (20 - len(written))
