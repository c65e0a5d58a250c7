from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from cordee.faces.web.runs.logs import page
from cordee.runs.logframes import (
    ERR,
    LOST,
    MAX_DATA_BYTES,
    OUT,
    OWN,
    LogReader,
    LogWriter,
    encode_frame,
    read_frames,
    split_name,
)
from cordee.runs.logtail import LogTail


def written(path, *entries) -> LogWriter:
    writer = LogWriter(path)
    for at, (rank, data) in enumerate(entries):
        writer.write(rank, OUT, 1, data, 100.0 + at)
    return writer


def test_frames_come_back_with_every_byte(tmp_path):
    path = tmp_path / "local-0-1.log"
    binary = bytes(range(256)) * 3
    writer = LogWriter(path)
    assert writer.write(3, ERR, 2, binary, 5.5)
    writer.close()
    (frame,) = read_frames(path)
    assert (frame.rank, frame.stream, frame.attempt, frame.time, frame.data) == (3, ERR, 2, 5.5, binary)
    assert frame.node == "local-0"
    assert frame.end == path.stat().st_size


def test_ten_megabytes_in_one_line_are_cut_into_frames_and_put_together_again(tmp_path):
    line = os.urandom(10_000_000).replace(b"\n", b" ")
    written(tmp_path / "a-1.log", (0, b"before\n" + line + b"\nafter\n")).close()
    assert max(len(frame.data) for frame in read_frames(tmp_path / "a-1.log")) == MAX_DATA_BYTES
    reader = LogReader(tmp_path)
    assert [found.data for found in reader.lines()] == [b"before", line, b"after"]
    assert [found.data for found in reader.tail(0, 2)] == [line, b"after"]


def test_a_torn_tail_at_every_byte_is_passed_over_and_repaired_at_open(tmp_path):
    path = tmp_path / "a-1.log"
    written(path, (0, b"one\n")).close()
    whole = path.stat().st_size
    written(path, (0, b"two\n")).close()
    data = path.read_bytes()
    for size in range(whole, len(data)):
        path.write_bytes(data[:size])
        assert [frame.data for frame in read_frames(path)] == [b"one\n"]
        written(path, (0, b"three\n")).close()
        assert [frame.data for frame in read_frames(path)] == [b"one\n", b"three\n"]
        assert path.stat().st_size == whole + len(encode_frame(0, OUT, 1, b"three\n", 0.0))


def test_damage_in_the_middle_costs_only_the_damaged_frame(tmp_path):
    path = tmp_path / "a-1.log"
    written(path, (0, b"one\n"), (0, b"two\n"), (0, b"three\n")).close()
    data = path.read_bytes()
    first, second = [frame.end for frame in read_frames(path)][:2]
    for at in range(first, second):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        assert [frame.data for frame in read_frames(path)] == [b"one\n", b"three\n"]


def test_a_file_that_is_no_log_is_appended_to_and_not_cut(tmp_path):
    path = tmp_path / "a-1.log"
    path.write_bytes(b"x" * 500_000)
    written(path, (0, b"one\n")).close()
    assert path.stat().st_size > 500_000
    assert [frame.data for frame in read_frames(path)] == [b"one\n"]


def test_reading_goes_on_from_where_it_was(tmp_path):
    path = tmp_path / "a-1.log"
    writer = written(path, (0, b"one\n"))
    (first,) = read_frames(path)
    assert list(read_frames(path, first.end)) == []
    writer.write(0, OUT, 1, b"two\n", 101.0)
    assert [frame.data for frame in read_frames(path, first.end)] == [b"two\n"]
    writer.close()


def test_a_full_disk_costs_output_and_says_how_much(tmp_path, full_disk):
    path = tmp_path / "a-1.log"
    writer = LogWriter(path)
    with full_disk(1000):
        taken = [writer.write(0, OUT, 1, b"x" * 99 + b"\n", float(at)) for at in range(20)]
    assert taken.count(True) == 7
    assert writer.dropped_bytes == 1300
    assert path.stat().st_size <= 1000
    assert writer.write(0, OUT, 1, b"back\n", 30.0)
    assert writer.last_error is None
    writer.close()
    frames = list(read_frames(path))
    assert [frame.data for frame in frames if not frame.flags] == [b"x" * 99 + b"\n"] * 7 + [b"back\n"]
    lost = [frame for frame in frames if frame.flags == LOST]
    assert all(frame.stream == OWN and frame.rank == 0 for frame in lost)
    assert sum(int(frame.data.split()[0]) for frame in lost) == 1300
    assert b"bytes of output were lost here: File too large" in lost[-1].data


def test_what_was_lost_is_said_at_close_too(tmp_path, full_disk):
    writer = LogWriter(tmp_path / "a-1.log")
    with full_disk(10):
        assert not writer.write(5, OUT, 2, b"gone", 1.0)
    writer.close()
    (frame,) = read_frames(tmp_path / "a-1.log")
    assert frame.flags == LOST
    assert (frame.rank, frame.attempt) == (5, 2)
    assert frame.data.startswith(b"4 bytes")


def test_a_deleted_folder_never_raises_and_its_return_is_noticed(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    writer = written(folder / "a-1.log", (0, b"one\n"))
    shutil.rmtree(folder)
    assert not writer.write(0, OUT, 1, b"two\n", 1.0)
    assert writer.dropped_bytes == 4
    folder.mkdir()
    assert writer.write(0, OUT, 1, b"three\n", 2.0)
    writer.close()
    assert [frame.flags for frame in read_frames(folder / "a-1.log")] == [LOST, 0]


def test_a_writer_in_a_missing_folder_counts_what_it_loses(tmp_path):
    writer = LogWriter(tmp_path / "missing" / "a-1.log")
    assert isinstance(writer.last_error, FileNotFoundError)
    assert not writer.write(0, OUT, 1, b"one", 1.0)
    assert writer.dropped_bytes == 3
    writer.close()


def test_a_writer_killed_while_writing_loses_no_frame_that_it_reported(tmp_path):
    script = """
import sys
from cordee.runs.logframes import LogWriter
writer = LogWriter(sys.argv[1])
at = 0
while True:
    writer.write(0, 0, 1, b"%d " % at * 5000, 1.0)
    print(at, flush=True)
    at += 1
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    path = tmp_path / "a-1.log"
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, env=env)
    for _ in range(200):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    said = 200 + len(child.stdout.read().split())
    child.wait()
    child.stdout.close()
    LogWriter(path).close()
    frames = list(read_frames(path))
    assert len(frames) >= said
    assert frames[-1].end == path.stat().st_size


def test_nodes_and_segments_are_merged_by_time(tmp_path):
    for name, times in (("n-a-1", (1.0, 4.0)), ("n-a-2", (7.0,)), ("n-b-1", (2.0, 3.0, 8.0))):
        writer = LogWriter(tmp_path / f"{name}.log")
        for moment in times:
            writer.write(0 if "a" in name else 1, OUT, 1, b"%d\n" % moment, moment)
        writer.close()
    reader = LogReader(tmp_path)
    assert [frame.time for frame in reader.frames()] == [1.0, 2.0, 3.0, 4.0, 7.0, 8.0]
    assert [line.data for line in reader.lines(rank=0)] == [b"1", b"4", b"7"]
    assert [frame.time for frame in reader.frames(node="n-b")] == [2.0, 3.0, 8.0]
    assert [line.data for line in reader.tail(None, 3)] == [b"4", b"7", b"8"]
    assert [line.data for line in reader.tail(0, 2)] == [b"4", b"7"]


def test_a_clock_that_jumps_back_does_not_reorder_a_node(tmp_path):
    writer = LogWriter(tmp_path / "a-1.log")
    for moment, data in ((100.0, b"1\n"), (50.0, b"2\n"), (101.0, b"3\n")):
        writer.write(0, OUT, 1, data, moment)
    writer.close()
    written(tmp_path / "b-1.log", (1, b"other\n")).close()
    mine = [frame.data for frame in LogReader(tmp_path).frames() if frame.node == "a"]
    assert mine == [b"1\n", b"2\n", b"3\n"]


def test_following_gives_each_frame_once(tmp_path):
    writer = written(tmp_path / "a-1.log", (0, b"one\n"), (1, b"not mine\n"))
    cursor: dict[str, int] = {}
    reader = LogReader(tmp_path)
    assert [frame.data for frame in reader.frames(rank=0, follow_from=cursor)] == [b"one\n"]
    assert list(reader.frames(rank=0, follow_from=cursor)) == []
    writer.write(0, OUT, 1, b"two\n", 200.0)
    writer.close()
    written(tmp_path / "b-1.log", (0, b"elsewhere\n")).close()
    assert sorted(frame.data for frame in reader.frames(rank=0, follow_from=cursor)) == [b"elsewhere\n", b"two\n"]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_tail_is_the_end_of_all_lines_for_any_count(tmp_path, count):
    writer = LogWriter(tmp_path / "a-1.log")
    for at in range(6000):
        writer.write(0, at % 2, 1, b"%d " % at * 10 + (b"\n" if at % 3 else b""), float(at))
        writer.write(1, OUT, 1, b"noise\n" * 10, float(at))
    writer.close()
    reader = LogReader(tmp_path)
    everything = list(reader.lines(rank=0))
    assert reader.tail(0, count) == everything[len(everything) - count :]


def test_tail_of_a_rank_that_was_silent_for_long_is_found_at_the_beginning(tmp_path):
    writer = written(tmp_path / "a-1.log", (7, b"early\n"))
    for _ in range(40):
        writer.write(0, OUT, 1, b"x" * 60_000 + b"\n", 1.0)
    writer.close()
    assert [line.data for line in LogReader(tmp_path).tail(7, 3)] == [b"early"]
    assert LogReader(tmp_path).tail(8, 3) == []


def test_only_the_files_of_a_rank_s_nodes_are_read(tmp_path):
    written(tmp_path / "a-1.log", (0, b"here\n")).close()
    written(tmp_path / "b-1.log", (0, b"never looked at\n")).close()
    reader = LogReader(tmp_path, lambda rank: ["a"])
    assert [line.data for line in reader.tail(0, 5)] == [b"here"]
    assert [path.name for path in reader.files(rank=0)] == ["a-1.log"]


def numbered(writer: LogWriter, begin: int, end: int) -> None:
    for at in range(begin, end):
        writer.write_many([(0, OUT, 1, b"line %d\n" % at, 100.0 + at)])


def test_of_a_log_that_is_rolled_the_last_bytes_stay_and_readers_go_on_across_its_parts(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    kept = 20_000
    writer, tail = LogWriter(logs / "local-0-1.log", keep_bytes=kept), LogTail(logs)
    followed, cursor, again = [], {}, []
    for begin in range(0, 3000, 50):
        numbered(writer, begin, begin + 50)
        followed += [frame.data for frame in tail.read()]
        again += [frame.data for frame in LogReader(logs).frames(0, follow_from=cursor)]
    assert followed == again == [b"line %d\n" % at for at in range(3000)]
    assert kept <= sum(path.stat().st_size for path in logs.iterdir()) <= 1.25 * kept
    reader = LogReader(logs)
    there = [line.data for line in reader.lines()]
    assert there == [b"line %d" % at for at in range(3000 - len(there), 3000)]
    assert [line.data for line in reader.tail(0, 300)] == there[-300:]
    shown = page(reader, 300)["lines"]
    assert [line["text"].encode() for line in shown] == there[-300:]
    assert len(tail._open) <= 5, "files that are gone are not held open"


def test_a_writer_goes_on_at_the_part_where_the_one_before_it_was(tmp_path):
    path = tmp_path / "local-0-1.log"
    numbered(LogWriter(path, keep_bytes=20_000), 0, 1500)
    writer = LogWriter(path, keep_bytes=20_000)
    numbered(writer, 1500, 1510)
    assert writer.path.name == max(os.listdir(tmp_path), key=split_name)
    assert [line.data for line in LogReader(tmp_path).tail(0, 11)] == [b"line %d" % at for at in range(1499, 1510)]


def test_a_line_is_not_cut_where_a_log_is_rolled(tmp_path):
    writer = LogWriter(tmp_path / "local-0-1.log", keep_bytes=4000)
    for at in range(200):
        writer.write_many([(0, OUT, 1, b"begins %d " % at, 1.0)])
        writer.write_many([(0, OUT, 1, b"ends %d\n" % at, 1.0)])
    lines = [line.data for line in LogReader(tmp_path).lines()]
    assert len(lines) > 20
    assert all(line == b"begins %s ends %s" % ((line.split()[1],) * 2) for line in lines)
