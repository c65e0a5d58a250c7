"""The sampler of a node, in this process, with clocks, disks and commands that misbehave."""

from __future__ import annotations

import os
import subprocess
import threading
import time

import pytest

import cordee
from cordee.core.errors import RunFolderError
from cordee.machine.processes.tree import read_process
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.record import sampler as module
from cordee.telemetry.node.record.process_end import Followed
from cordee.telemetry.node.record.roster import RecordingRoster, Registration
from cordee.telemetry.node.record.sampler import NodeRecorder
from cordee.telemetry.node.recording import (
    Recorder,
    all_ended,
    claim_number,
    enter_recording,
    read_recorder,
    read_recorders,
    recorder_numbers,
    write_recorder,
)
from cordee.testing.patience import wait_until
from cordee.wire.channel import ChannelWriter


class Node:
    """A process that waits, its registration, and the sampler that follows it in a thread."""

    def __init__(self, root):
        self.folder = RunFolder(root / "recording")
        enter_recording(self.folder, "key")
        self.number = claim_number(self.folder)
        self.meeting = RecordingRoster(["words"], root)
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        self.mine = Registration(
            self.process.pid, read_process(self.process.pid).start_ticks, 0, 0, ["cat"], time.time()
        )
        self.lock = self.meeting.register(self.mine, channel=True)
        document = Recorder(self.number, "n1", "host", os.getpid(), time.time(), 0.1, "0")
        self.recorder = NodeRecorder(self.meeting, self.folder, document, source="cpu", threads=False)
        followed = Followed(self.mine.pid, self.mine.start_ticks)
        self.thread = threading.Thread(target=self.recorder.run, args=(self.mine, followed))

    def document(self):
        return read_recorder(self.folder, self.number)

    def until(self, true):
        wait_until(true, 120.0, said=lambda: read_recorders(self.folder), every_s=0.005)

    def end(self):
        """Let the process end, and the sampler with it; return the sampler's last document."""
        self.process.stdin.close()
        self.process.wait()
        self.thread.join(120)
        assert not self.thread.is_alive()
        os.close(self.lock)
        return self.document()


@pytest.fixture
def node(tmp_path):
    found = Node(tmp_path)
    yield found
    if found.process.poll() is None:
        found.process.kill()
        found.process.communicate()


def blocks(node):
    return sum(path.stat().st_size for path in node.folder.telemetry.glob("*.log"))


def test_a_clock_that_is_put_back_is_told_and_loses_no_sample(node, monkeypatch):
    back = [0.0]

    class Clock:
        monotonic = staticmethod(time.monotonic)
        clock_gettime = staticmethod(time.clock_gettime)
        CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

        @staticmethod
        def time():
            return time.time() - back[0]

    monkeypatch.setattr(module, "time", Clock)
    monkeypatch.setattr(module, "_FLUSH_EVERY_S", 0.0)
    node.thread.start()
    node.until(lambda: blocks(node) > 3000)
    back[0] = 7200.0
    before = blocks(node)
    node.until(lambda: blocks(node) > before + 1000)
    document = node.end()
    assert [text.partition(" by ")[0] for text in document.remarks] == ["the clock of n1 was put back"]
    times = cordee.open_run(node.folder.root).grid("rank-0.1s", ["memory_rss_bytes"])
    assert times.times[-1] - times.times[0] > 7000


def test_what_a_full_disk_took_is_told_once_there_is_room_again(node, monkeypatch):
    full = [True]
    write = os.write

    def refuse(descriptor, data):
        if full[0] and os.readlink(f"/proc/self/fd/{descriptor}").endswith(".log"):
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", refuse)
    monkeypatch.setattr("cordee.telemetry.node.blocklog.KEEP_BYTES", 2000)
    monkeypatch.setattr("cordee.telemetry.node.blocklog.RETRY_AFTER_S", 0.0)
    monkeypatch.setattr(module, "_FLUSH_EVERY_S", 0.0)
    node.thread.start()
    writer = node.recorder._writer
    node.until(lambda: writer.dropped_bytes > 0)
    full[0] = False
    node.until(lambda: blocks(node) > 3000)
    document = node.end()
    assert [text.partition(" bytes ")[2] for text in document.remarks] == [
        "of samples are lost: No space left on device"
    ]
    assert cordee.open_run(node.folder.root).groups() == ["node-0.1s", "rank-0.1s"]


def test_what_is_logged_comes_from_the_channel_and_the_channel_goes(node):
    writer = ChannelWriter(node.mine.channel)
    for step in range(4):
        writer.write(step, {"tokens": 10.0})
    node.thread.start()
    document = node.end()
    writer.close()
    assert document.ended_at is not None
    assert cordee.open_run(node.folder.root).series("tokens").steps.tolist() == [0, 1, 2, 3]
    assert not node.meeting.folder.exists()


def test_several_samplers_of_one_node_are_told(node):
    other = Recorder(claim_number(node.folder), "n1", "host", 1, time.time(), 0.1, "0")
    write_recorder(node.folder, other)
    write_recorder(node.folder, Recorder(claim_number(node.folder), "n2", "host", 1, time.time(), 0.1, "0"))
    node.thread.start()
    (remark,) = node.end().remarks
    assert remark.startswith("n1 has several samplers")
    assert remark.endswith("each GPU counts once, by its UUID")


def test_a_disk_that_is_full_at_the_start_leaves_no_folder_that_refuses_everybody(tmp_path, monkeypatch):
    def refuse(descriptor, data):
        raise OSError(28, "No space left on device")

    folder = RunFolder(tmp_path / "recording")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(RunFolderError, match="No space left"):
            enter_recording(folder, "key")
    assert enter_recording(folder, "key")


def test_a_sampler_that_fails_says_so_and_closes_the_recording(node, monkeypatch):
    monkeypatch.setattr(module, "node_sampler", lambda name: 1 / 0)
    node.thread.start()
    node.thread.join(20)
    assert node.document().remarks == ["the sampler of n1 failed: ZeroDivisionError: division by zero"]
    assert node.document().ended_at is not None
    assert node.document().ranks[0].ended_at is None
    node.end()


def test_a_recording_that_nobody_has_written_to_for_a_minute_has_ended(tmp_path):
    folder = RunFolder(tmp_path / "recording")
    assert enter_recording(folder, "key")
    assert not enter_recording(folder, "key")
    assert [claim_number(folder, 7, 4), claim_number(folder, 7, 4), claim_number(folder, 8, 4)] == [7, 11, 8]
    assert recorder_numbers(folder, 7, 4) == [7, 11]
    assert recorder_numbers(folder) == [7, 8, 11]
    now = time.time()
    recorder = Recorder(7, "n1", "host", 1, now - 3600, 1.0, "0", heard_at=now - 100)
    assert all_ended(folder, [recorder])
    (folder.telemetry / "blocks-7-0.log").touch()
    assert not all_ended(folder, [recorder])
    os.utime(folder.telemetry / "blocks-7-0.log", (now - 61, now - 61))
    assert all_ended(folder, [recorder])
    recorder.interval_s = 30.0
    assert not all_ended(folder, [recorder])
