"""The channel between a rank and its agent: nothing acknowledged too early, nothing lost, nothing believed blindly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cordee.wire.channel import RING_BYTES, ChannelReader, ChannelWriter, create_channel


@pytest.fixture
def channel(tmp_path):
    path = tmp_path / "1-0.channel"
    create_channel(path)
    return path


def test_events_come_back_as_they_were_written(channel):
    writer = ChannelWriter(channel)
    writer.write(3, {"loss": 0.5, "rate": float("inf")})
    writer.write(None, {"note": 1})
    events, _ = ChannelReader(channel).read()
    assert [(step, values) for _, _, step, values in events] == [
        (3, {"loss": 0.5, "rate": float("inf")}),
        (None, {"note": 1.0}),
    ]
    assert events[0][0] < events[1][0]


def test_what_is_not_acknowledged_is_read_again_with_the_same_offsets(channel):
    writer = ChannelWriter(channel)
    for step in range(10):
        writer.write(step, {"x": step})
    first = ChannelReader(channel)
    events, _ = first.read(4)
    _, cursor = first.read(0)
    first.acknowledge(cursor)
    again, _ = ChannelReader(channel).read()
    assert [event[2] for event in events] == [0, 1, 2, 3]
    assert [event[2] for event in again] == [4, 5, 6, 7, 8, 9]


def test_the_ring_wraps_round_many_times_without_a_loss(channel):
    writer, reader = ChannelWriter(channel), ChannelReader(channel)
    seen = []
    for step in range(60_000):
        writer.write(step, {"loss": step, "tokens_per_s": 1.0})
        if step % 5000 == 4999:
            while True:
                events, cursor = reader.read(3000)
                reader.acknowledge(cursor)
                seen += [event[2] for event in events]
                if not events:
                    break
    assert seen == list(range(60_000))
    assert reader.dropped == 0
    assert reader.words[24] > 2 * RING_BYTES


def test_a_full_ring_counts_what_it_drops_and_keeps_what_it_has(channel):
    writer, reader = ChannelWriter(channel), ChannelReader(channel)
    for step in range(40_000):
        writer.write(step, {"loss": 1.0})
    events, _ = reader.read(100_000)
    assert [event[2] for event in events] == list(range(len(events)))
    assert len(events) + reader.dropped == 40_000
    assert reader.dropped > 0


def test_a_writer_that_is_killed_leaves_whole_events(channel):
    program = (
        "import sys; from cordee.wire.channel import ChannelWriter\n"
        f"writer = ChannelWriter({str(channel)!r})\nprint('ready', flush=True)\nstep = 0\n"
        "while True:\n    writer.write(step, {'loss': float(step)}); step += 1\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    reader = ChannelReader(channel)
    seen = []
    while len(seen) < 5000:
        events, cursor = reader.read()
        reader.acknowledge(cursor)
        seen += events
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    events, _ = reader.read(100_000)
    seen += events
    assert all(values["loss"] == step for _, _, step, values in seen)
    steps = [event[2] for event in seen]
    assert steps == sorted(set(steps))


def test_garbage_in_the_ring_is_skipped_and_never_raises(channel):
    writer, reader = ChannelWriter(channel), ChannelReader(channel)
    writer.write(1, {"a": 1.0})
    start = writer.words[8]
    writer.write(2, {"a": 2.0})
    writer.ring[start : start + 16] = os.urandom(16)
    writer.write(3, {"a": 3.0})
    events, _ = reader.read()
    assert [event[2] for event in events] == [1]
    reader._damaged_since = 0.0
    events, _ = reader.read()
    assert [event[2] for event in events] == [3]
    assert reader.damaged_bytes > 0


def test_ranks_agree_on_a_step_through_the_channel(channel):
    writer, reader = ChannelWriter(channel), ChannelReader(channel)
    assert writer.ask(0) is False
    reader.request_stop()
    assert writer.ask(7) is True
    writer.answer(7)
    assert reader.ack_step == 7
    assert writer.stop_step is None
    reader.set_stop_step(9)
    assert writer.stop_step == 9


def test_a_second_writer_is_refused(channel):
    ChannelWriter(channel)
    with pytest.raises(BlockingIOError):
        ChannelWriter(channel)


def test_a_file_that_is_no_channel_is_refused(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\0" * 100)
    with pytest.raises(ValueError, match="no channel"):
        ChannelReader(path)
