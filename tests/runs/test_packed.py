"""Recordings that nobody sealed, read in single precision: the same numbers in a third of the memory."""

from __future__ import annotations

import numpy as np
import pytest

from cordee.runs.folder import RunFolder
from cordee.telemetry.node.blocklog import GRID, BlockLogWriter, encode_grid, encode_record, encode_schema
from cordee.telemetry.store.reader import open_run
from cordee.telemetry.store.unsealed.spool import Spool, SpooledValues
from cordee.telemetry.store.unsealed.tail import TailPart
from support import recording_faults


@pytest.mark.parametrize("fault", ["clock_going_back", "ranks_of_different_lengths", "killed_sampler", "lost_gpu"])
def test_packed_samples_are_the_samples(fault, tmp_path):
    getattr(recording_faults, fault)(tmp_path)
    plain, packed = open_run(tmp_path), open_run(tmp_path, packed=True)
    for group in plain.groups():
        names = list(plain.metrics(group))
        np.testing.assert_array_equal(packed.grid(group).values, plain.grid(group).values)
        one = packed.grid(group, names[-1:])
        np.testing.assert_array_equal(one.values, plain.grid(group, names[-1:]).values)
        assert one.values.dtype == np.float32


@pytest.mark.parametrize("fault", ["clock_going_back", "killed_sampler"])
def test_samples_in_a_file_are_the_samples(fault, tmp_path, monkeypatch):
    monkeypatch.setattr("cordee.telemetry.store.unsealed.tail._SPOOLED_BYTES", 0)
    getattr(recording_faults, fault)(tmp_path)
    plain, spooled = open_run(tmp_path), open_run(tmp_path, packed=True)
    assert all(isinstance(of.values, SpooledValues) for of in spooled.source("gpu").samples)
    for group in plain.groups():
        np.testing.assert_array_equal(spooled.grid(group).values, plain.grid(group).values)
        assert spooled.clock_jumps(group) == plain.clock_jumps(group)


def test_what_no_disk_takes_stays_in_memory(monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", refuse)
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert Spool().put(values)[1, 2, 0] == values[0, 1, 2]


def test_samples_that_came_after_packing_are_added(tmp_path):
    folder = RunFolder.create(tmp_path, "t-20260101T000000Z-abcd")
    writer = BlockLogWriter(folder.telemetry, 1)
    metrics = [{"name": name, "unit": "ratio", "source": "test"} for name in ("a", "b")]
    schema, record = encode_schema("n1", "node", 1.0, ["n1"], metrics)
    writer.append(record + encode_grid(schema, 1_800_000_000.0, [1.0, 2.0]))
    writer.flush()
    run = open_run(folder.root, packed=True)
    assert run.grid("node", ["b"]).values.tolist() == [[[2.0]]]
    writer.append(encode_grid(schema, 1_800_000_001.0, [3.0, 4.0]))
    writer.close()
    assert run.grid("node", ["b"]).values.tolist() == [[[2.0], [4.0]]]


def test_records_that_make_no_sense_are_counted_and_the_others_kept(tmp_path):
    folder = RunFolder.create(tmp_path, "t-20260101T000000Z-abcd")
    writer = BlockLogWriter(folder.telemetry, 1)
    schema, record = encode_schema("n1", "node", 1.0, ["n1"], [{"name": "a", "unit": "ratio", "source": "test"}])
    writer.append(record + encode_record(GRID, b"no") + encode_grid(schema, 1_800_000_000.0, [1.0]))
    writer.close()
    part = TailPart(writer.path)
    part.read()
    assert part.malformed_records == 1
    assert len(part.rows[schema]) == 1
