"""The block log on a disk that says no late: what was accepted is written again, and read once."""

from __future__ import annotations

import errno

import pytest

import cordee.telemetry.node.blocklog as blocklog
from cordee.telemetry.node.blocklog import (
    GRID,
    BlockLogWriter,
    decode_grid,
    encode_grid,
    iter_records,
    list_parts,
    read_blocks,
)
from support.disks import REFUSALS, FaultyDisk


def seconds_in(folder):
    found = []
    for _, _, path in list_parts(folder):
        for _, _, payload in read_blocks(path):
            found += [decode_grid(body)[1] for kind, body in iter_records(payload) if kind == GRID]
    return found


def log(writer, second):
    writer.append(encode_grid(1, float(second), [1.0]))
    return writer.flush()


@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("call", ["open", "write", "fsync", "close"])
def test_whichever_call_refuses_nothing_that_was_accepted_is_lost(tmp_path, call, number, monkeypatch):
    monkeypatch.setattr(blocklog, "SYNC_AFTER_S", 0.0)
    disk = FaultyDisk()
    writer = BlockLogWriter(tmp_path, 1, max_bytes=100, disk=disk)
    for second in range(6):
        if second == 3:
            disk.fail(call, number, lose=True)
        log(writer, second)
    writer.close()
    assert sorted(set(seconds_in(tmp_path))) == [float(second) for second in range(6)]
    assert disk.met[call] == 1
    assert writer.dropped_bytes == 0


def test_a_part_whose_close_is_refused_is_not_acknowledged_and_is_written_again(tmp_path):
    disk = FaultyDisk()
    writer = BlockLogWriter(tmp_path, 1, max_bytes=10, disk=disk)
    assert log(writer, 1)
    disk.fail("close", errno.EDQUOT, lose=True)
    assert not log(writer, 2)
    assert writer.last_error.errno == errno.EDQUOT
    assert log(writer, 3)
    assert writer.last_error is None
    writer.close()
    assert sorted(set(seconds_in(tmp_path))) == [1.0, 2.0, 3.0]


def test_what_was_written_is_made_durable_every_few_seconds(tmp_path, monkeypatch):
    disk = FaultyDisk()
    writer = BlockLogWriter(tmp_path, 1, disk=disk)
    log(writer, 1)
    assert disk.calls["fsync"] == 0
    moment = writer._synced_at + blocklog.SYNC_AFTER_S
    monkeypatch.setattr("cordee.telemetry.node.blocklog.monotonic", lambda: moment)
    writer.tick(moment)
    assert disk.calls["fsync"] == 1
    writer.tick(moment + 100)
    assert disk.calls["fsync"] == 1


def test_the_last_part_too_is_written_again_when_closing_it_is_refused(tmp_path):
    disk = FaultyDisk()
    writer = BlockLogWriter(tmp_path, 1, disk=disk)
    log(writer, 1)
    disk.fail("fsync", errno.EIO, lose=True)
    assert writer.close()
    assert seconds_in(tmp_path) == [1.0]
    assert disk.met["fsync"] == 1
