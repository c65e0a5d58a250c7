"""The pulse file: what a rank writes is read whole or not at all, whatever it holds."""

from __future__ import annotations

import os
import random
import struct
import zlib
from pathlib import Path

import pytest

from cordee.wire.pulse import PULSE_BYTES, GroupProgress, KindSums, PulseReader, PulseWriter, TimeSums

GROUPS = [GroupProgress("0", 8, 12, 11), GroupProgress("tp", 2, 5, -1)]
# Where words lie, in bytes: the number of changes of the table, its length, its checksum, and the table.
SEQUENCE, LENGTH, CHECKSUM, TABLE = 13 * 8, 14 * 8, 15 * 8, 512


@pytest.fixture
def pulse(tmp_path: Path) -> tuple[PulseWriter, PulseReader]:
    writer = PulseWriter(str(tmp_path), "3", elastic=True)
    writer.beat(10**9, 5, 40, 7, GROUPS)
    return writer, PulseReader(writer.path)


def put(writer: PulseWriter, at: int, content: bytes) -> None:
    with open(writer.path, "r+b") as file:
        file.seek(at)
        file.write(content)


def test_what_a_rank_shows_is_read(pulse):
    writer, reader = pulse
    writer.answers_to(61)
    told = reader.read()
    assert (told.pid, told.rank, told.signal, told.elastic) == (os.getpid(), 5, 61, True)
    assert (told.beats, told.beat_ns, told.optimizer_steps, told.moves) == (1, 10**9, 40, 7)
    assert told.groups == tuple(GROUPS)


def test_the_line_where_it_stands_is_shown_whole_or_not_at_all(pulse):
    writer, reader = pulse
    assert reader.stands_at() == ""
    writer.stands_at("/home/ada/train.py:26 (töne)")
    writer.beat(2 * 10**9, 5, 41, 8, None)
    assert reader.stands_at() == "/home/ada/train.py:26 (töne)"
    assert reader.read().groups == tuple(GROUPS)
    writer.stands_at("/" + 5000 * "a" + "/train.py:1 (f)")
    assert reader.stands_at().endswith("a/train.py:1 (f)")
    put(writer, 7700, b"broken")
    assert reader.stands_at() == ""


def test_a_dump_is_asked_for_and_answered(pulse):
    writer, reader = pulse
    reader.ask(9)
    assert writer.asked == 9
    writer.dumped(9)
    assert reader.read().dumped == 9


def test_the_agent_says_for_which_window_it_wants_the_time_and_reads_what_the_rank_did(pulse):
    writer, reader = pulse
    assert (writer.wanted, reader.read().times) == (0, TimeSums())
    reader.want(4)
    assert writer.wanted == 4
    kinds = tuple(KindSums(*(10**9 * (at + 1) + place for place in range(4))) for at in range(4))
    times = TimeSums(4, 10**10, 20, 30, 2**63, kinds)
    writer.spent(times, 41)
    assert reader.read().times == times
    assert (reader.read().groups, reader.read().optimizer_steps, writer.asked) == (tuple(GROUPS), 41, 0)
    reader.want(0)
    assert writer.wanted == 0


@pytest.mark.parametrize(
    ("at", "content"),
    [
        (SEQUENCE, struct.pack("<Q", 3)),
        (TABLE + 3, b"X"),
        (LENGTH, struct.pack("<Q", 1 << 63)),
        (CHECKSUM, struct.pack("<Q", 1)),
    ],
)
def test_a_torn_table_is_no_table_and_the_words_stay(pulse, at, content):
    writer, reader = pulse
    put(writer, at, content)
    told = reader.read()
    assert (told.groups, told.optimizer_steps) == ((), 40)


@pytest.mark.parametrize(
    "table",
    [
        b"[" * 7000,
        b"{}",
        b"[1, [], [1, 2, 3, 4], ['a']]",
        b'[["a", true, 1, 1]]',
        b'[["a", 1, 1.5, 1]]',
        b"\xff\xfe",
        b"9" * 7000,
    ],
)
def test_a_table_of_anything_else_has_no_groups(pulse, table):
    writer, reader = pulse
    put(writer, TABLE, table)
    put(writer, LENGTH, struct.pack("<QQ", len(table), zlib.crc32(table)))
    assert reader.read().groups == ()


def test_a_file_that_is_cut_short_while_it_is_read_ends_nobody(pulse):
    writer, reader = pulse
    before = reader.read()
    os.truncate(writer.path, 100)
    assert reader.read() == before


def test_no_content_makes_reading_fail(pulse):
    writer, reader = pulse
    for seed in range(200):
        put(writer, 0, random.Random(seed).randbytes(PULSE_BYTES))
        reader.read()


@pytest.mark.parametrize("kind", ["empty", "other", "link", "fifo"])
def test_what_is_no_pulse_is_refused(tmp_path: Path, kind: str):
    path = tmp_path / "1-x-1.pulse"
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "other":
            path.write_bytes(bytes(PULSE_BYTES))
        case "link":
            path.symlink_to(PulseWriter(str(tmp_path), "1", elastic=False).path)
        case _:
            os.mkfifo(path)
    with pytest.raises((OSError, ValueError)):
        PulseReader(str(path))
