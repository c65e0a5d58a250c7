from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cordee.telemetry.node import blocklog
from cordee.telemetry.node.blocklog import (
    EVENTS,
    GRID,
    SCHEMA,
    BlockLogWriter,
    BlockReader,
    decode_grid,
    decode_json,
    encode_events,
    encode_grid,
    encode_schema,
    iter_records,
    list_parts,
    read_blocks,
)

SCHEMA_ID, SCHEMA_RECORD = encode_schema(
    "local-0", "node", 1.0, ["local-0"], [{"name": "load_1m", "unit": "", "source": "proc"}]
)


def grid(second: float) -> bytes:
    return encode_grid(SCHEMA_ID, second, [second])


def seconds_in(paths) -> list[float]:
    found = []
    for path in paths:
        for _, _, payload in read_blocks(path):
            found += [decode_grid(body)[1] for kind, body in iter_records(payload) if kind == GRID]
    return found


def parts(folder: Path) -> list[Path]:
    return [path for _, _, path in list_parts(folder)]


def test_records_come_back_as_they_were_written():
    events = encode_events("local-0", 3, 2, 1, [(64, 1.5, None, {"loss": 0.25})])
    records = list(iter_records(SCHEMA_RECORD + grid(7.0) + events))
    assert [kind for kind, _ in records] == [SCHEMA, GRID, EVENTS]
    assert decode_json(records[0][1])["id"] == SCHEMA_ID
    schema, moment, values = decode_grid(records[1][1])
    assert (schema, moment, list(values)) == (SCHEMA_ID, 7.0, [7.0])
    document = decode_json(records[2][1])
    assert document["events"] == [[64, 1.5, None, {"loss": 0.25}]]
    assert document["dropped"] == 1


def test_a_schema_id_depends_on_every_field_and_nothing_else():
    again = encode_schema("local-0", "node", 1, ["local-0"], [{"source": "proc", "unit": "", "name": "load_1m"}])
    assert again[0] == SCHEMA_ID
    assert encode_schema("local-1", "node", 1.0, ["local-0"], [])[0] != SCHEMA_ID


@pytest.mark.parametrize("cut", [1, 4, 6])
def test_records_that_end_early_are_refused(cut):
    with pytest.raises(ValueError):
        list(iter_records(grid(1.0)[:-cut] if cut != 4 else grid(1.0)[:4]))


def test_a_torn_tail_at_every_byte_gives_the_whole_blocks_and_goes_on_later(tmp_path):
    writer = BlockLogWriter(tmp_path, 1)
    writer.append(grid(1.0))
    writer.flush()
    whole = writer.path.stat().st_size
    writer.append(grid(2.0))
    writer.close()
    data = writer.path.read_bytes()
    torn = tmp_path / "torn"
    for size in range(whole, len(data)):
        torn.write_bytes(data[:size])
        reader = BlockReader(torn)
        assert len(list(reader)) == 1
        assert reader.offset == whole
        assert reader.skipped_bytes == 0
        torn.write_bytes(data)
        assert len(list(BlockReader(torn, reader.offset))) == 1


def test_damage_in_the_middle_costs_only_the_damaged_block(tmp_path):
    writer = BlockLogWriter(tmp_path, 1)
    offsets = []
    for second in range(3):
        writer.append(grid(float(second)))
        writer.flush()
        offsets.append(writer.path.stat().st_size)
    writer.close()
    data = writer.path.read_bytes()
    for at in range(offsets[0], offsets[1]):
        writer.path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        reader = BlockReader(writer.path)
        assert [sequence for _, sequence, _ in reader] == [0, 2]
        assert reader.skipped_bytes == offsets[1] - offsets[0]


def test_the_next_block_is_found_behind_megabytes_of_garbage(tmp_path):
    writer = BlockLogWriter(tmp_path, 1)
    writer.append(grid(1.0))
    writer.close()
    block = writer.path.read_bytes()
    garbage = (blocklog.MAGIC + b"\xff" * 999) * 2600
    writer.path.write_bytes(block + garbage + block)
    reader = BlockReader(writer.path)
    assert len(list(reader)) == 2
    assert reader.skipped_bytes == len(garbage)


def test_every_part_starts_with_the_schemas_and_can_be_read_alone(tmp_path):
    writer = BlockLogWriter(tmp_path, 4, max_bytes=300)
    writer.append(SCHEMA_RECORD)
    for second in range(20):
        writer.append(grid(float(second)))
        writer.flush()
    writer.close()
    assert len(parts(tmp_path)) > 3
    for path in parts(tmp_path):
        first = next(read_blocks(path))[2]
        assert next(iter_records(first))[0] == SCHEMA
    assert seconds_in(parts(tmp_path)) == [float(second) for second in range(20)]


def test_parts_rotate_by_age_and_a_new_writer_of_the_epoch_begins_a_new_part(tmp_path):
    writer = BlockLogWriter(tmp_path, 1, max_age_s=0.0)
    for second in range(3):
        writer.append(grid(float(second)))
        writer.flush()
    BlockLogWriter(tmp_path, 1).close()
    other = BlockLogWriter(tmp_path, 1)
    other.append(grid(3.0))
    other.close()
    assert [part for _, part, _ in list_parts(tmp_path)] == [0, 1, 2, 3]
    assert seconds_in(parts(tmp_path)) == [0.0, 1.0, 2.0, 3.0]


def test_parts_are_ordered_by_number_and_foreign_files_are_no_parts(tmp_path):
    for name in (
        "blocks-2-0.log",
        "blocks-10-0.log",
        "blocks-2-10.log",
        "blocks-2-9.log",
        "blocks-x.log",
        "sealed.zarr",
    ):
        (tmp_path / name).touch()
    assert [(epoch, part) for epoch, part, _ in list_parts(tmp_path)] == [(2, 0), (2, 9), (2, 10), (10, 0)]
    assert list_parts(tmp_path / "missing") == []


def test_tick_flushes_what_is_older_than_two_seconds(tmp_path):
    writer = BlockLogWriter(tmp_path, 1)
    writer.append(grid(1.0))
    writer.tick(time.monotonic() + 1.0)
    assert writer.pending_bytes > 0
    assert not parts(tmp_path)
    writer.tick(time.monotonic() + 2.1)
    assert writer.pending_bytes == 0
    assert seconds_in(parts(tmp_path)) == [1.0]


def test_a_large_buffer_is_written_at_once(tmp_path):
    writer = BlockLogWriter(tmp_path, 1)
    writer.append(grid(1.0) * 13_000)
    assert writer.pending_bytes == 0
    assert len(seconds_in(parts(tmp_path))) == 13_000


def test_malformed_records_are_left_out_and_counted(tmp_path):
    writer = BlockLogWriter(tmp_path, 1)
    writer.append(grid(1.0) + b"\xff\xff\xff\xff\x02rubbish")
    writer.append(grid(2.0))
    writer.close()
    assert seconds_in(parts(tmp_path)) == [1.0, 2.0]
    assert writer.malformed_bytes == 12


def test_a_full_disk_delays_and_nothing_is_lost_when_there_is_room_again(tmp_path, full_disk):
    writer = BlockLogWriter(tmp_path, 1)
    writer.append(SCHEMA_RECORD)
    with full_disk(2000):
        for second in range(100):
            writer.append(grid(float(second)))
            writer.flush()
        assert writer.last_error is not None
        assert writer.pending_bytes > 0
        assert writer.path.stat().st_size <= 2000
        assert BlockReader(writer.path).skipped_bytes == 0
    assert writer.flush()
    assert writer.last_error is None
    assert writer.dropped_bytes == 0
    writer.close()
    assert seconds_in(parts(tmp_path)) == [float(second) for second in range(100)]
    assert len(parts(tmp_path)) == 1


def test_what_exceeds_eight_megabytes_is_dropped_oldest_first_and_leaves_a_gap_in_the_sequence(tmp_path, full_disk):
    writer = BlockLogWriter(tmp_path, 1)
    bulk = grid(0.0) * 11_000
    with full_disk(100):
        writer.append(SCHEMA_RECORD)
        for _ in range(60):
            writer.append(bulk)
        assert writer.pending_bytes <= 8 << 20
        assert writer.dropped_bytes + writer.pending_bytes == 60 * len(bulk) + len(SCHEMA_RECORD)
    writer.append(grid(5.0))
    assert writer.close()
    blocks = list(read_blocks(writer.path))
    assert next(iter_records(blocks[0][2]))[0] == SCHEMA
    assert blocks[0][1] > 0
    assert seconds_in([writer.path])[-1] == 5.0


def test_a_deleted_folder_never_raises_and_writing_goes_on_when_it_is_back(tmp_path):
    folder = tmp_path / "telemetry"
    folder.mkdir()
    writer = BlockLogWriter(folder, 1)
    writer.append(SCHEMA_RECORD + grid(1.0))
    assert writer.flush()
    shutil.rmtree(folder)
    writer.append(grid(2.0))
    assert not writer.flush()
    assert isinstance(writer.last_error, FileNotFoundError)
    assert not folder.exists()
    folder.mkdir()
    writer.append(grid(3.0))
    assert writer.close()
    assert seconds_in(parts(folder)) == [2.0, 3.0]


def test_a_writer_killed_while_writing_leaves_a_readable_log(tmp_path):
    script = """
import sys
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid
writer = BlockLogWriter(sys.argv[1], 1, max_bytes=200_000)
second = 0
while True:
    writer.append(encode_grid(1, float(second), [0.0] * 500))
    writer.flush()
    second += 1
    print(second, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, env=_env())
    for _ in range(200):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    said = 200 + len(child.stdout.read().split())
    child.wait()
    child.stdout.close()
    found = seconds_in(parts(tmp_path))
    assert found == [float(second) for second in range(len(found))]
    assert len(found) >= said


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_schema_that_was_asked_for_before_is_the_same_and_a_changed_one_is_not():
    metrics = [{"name": "power", "unit": "watts", "source": "x"}]
    devices = ["a", "b"]
    first = encode_schema("node-1", "gpu", 1.0, devices, metrics)
    assert encode_schema("node-1", "gpu", 1.0, list(devices), [dict(metrics[0])]) == first
    metrics[0]["source"] = "y"
    devices.append("c")
    changed = {
        first,
        encode_schema("node-1", "gpu", 1.0, devices, metrics),
        encode_schema("node-1", "gpu", 1.0, devices[:2], metrics),
        encode_schema("node-1", "gpu", 0.5, devices[:2], metrics),
        encode_schema("node-1", "gpu", 0.5, devices[:2], metrics, 2),
        encode_schema("node-2", "gpu", 0.5, devices[:2], metrics, 2),
    }
    assert len(changed) == 6
