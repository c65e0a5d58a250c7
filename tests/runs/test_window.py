from __future__ import annotations

import struct

import numpy as np
import pytest

from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid, encode_schema
from cordee.telemetry.store.grids import Axes
from cordee.telemetry.store.reader import open_run
from cordee.telemetry.store.seal import drop_sealed_parts, seal
from cordee.telemetry.store.unsealed.window import BLOCK_SLOTS, Window
from cordee.telemetry.store.views import heat

T0 = 1_700_000_000.0
METRICS = ["metric_0_ratio", "metric_1_ratio", "metric_2_ratio"]


def schema(devices=("a", "b"), metrics=("m",), node="n"):
    return {"node": node, "devices": list(devices), "metrics": [{"name": name} for name in metrics]}


def row(moment, *values, kind="f"):
    return struct.pack(f"<d{len(values)}{kind}", moment, *values)


def painted(window, first, length, name="m"):
    target = np.full((1, length, len(window.devices)), np.nan, dtype=np.float32)
    window.paint(target, first, [name], np.arange(len(window.devices)))
    return target[0]


def test_a_window_goes_with_the_parts_that_filled_it(tmp_path):
    window = Window(1.0)
    window.place(1, schema())
    parts = [tmp_path / str(number) for number in range(4)]
    for number, part in enumerate(parts):
        window.take({1: [row(second, second, 0) for second in range(50 * number, 50 * number + 50)]}, part)
    assert window.extent(0, 1000) == (0, 200)
    assert window.length == -(-200 // BLOCK_SLOTS)
    window.drop(parts[:2])
    assert window.extent(0, 1000) == (60, 200)  # the block at 60 also holds samples of the third part
    window.drop(parts[2:])
    assert window.empty
    assert window.extent(0, 1000) is None


def test_rows_of_both_precisions_and_of_no_sense_lie_side_by_side(tmp_path):
    window = Window(1.0)
    window.place(1, schema())
    rows = [
        row(0.2, 1, 2),
        row(1.0, 3.5, 1e300, kind="d"),
        row(2.0, 9),
        row(float("nan"), 1, 1),
        row(float("inf"), 1, 1),
    ]
    window.take({1: rows}, tmp_path)
    assert painted(window, 0, 2).tolist() == [[1, 2], [3.5, np.inf]]
    assert window.extent(-10, 10) == (0, 2)


def test_schemas_of_many_nodes_are_taken_in_as_one(tmp_path):
    window = Window(1.0)
    random = np.random.default_rng(1)
    want = random.random((30, 8), dtype=np.float32)
    want[random.random(want.shape) < 0.2] = np.nan
    rows = {}
    for node in range(4):
        window.place(node, schema([f"{node}-0", f"{node}-1"], node=f"n{node}"))
        rows[node] = [row(second, *want[second, 2 * node : 2 * node + 2]) for second in range(30)]
    window.take(rows, tmp_path)
    np.testing.assert_array_equal(painted(window, 0, 30), want)


def test_clocks_scattered_over_time_do_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("cordee.telemetry.store.unsealed.window._MOST_BYTES", 10_000)
    window = Window(1.0)
    window.place(1, schema())
    window.take({1: [row(1e6 * number, 1, 2) for number in range(500)]}, tmp_path)
    assert window.length < 30
    assert window.outside(0, 10**9) == 500 - window.length


def test_blocks_beyond_memory_lie_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("cordee.telemetry.store.unsealed.window._IN_MEMORY_BYTES", 0)
    window = Window(1.0)
    window.place(1, schema())
    window.take({1: [row(0, 1, 2)]}, tmp_path)
    window.place(2, schema(("c",)))
    window.take({2: [row(0, 3)]}, tmp_path)
    assert painted(window, 0, 1).tolist() == [[1, 2, 3]]


def test_a_follower_of_a_run_that_is_sealed_meanwhile_sees_the_same_and_keeps_little(known):
    run = open_run(known.folder.root)
    most = 0
    for start in range(0, known.seconds, 10):
        known.write(1 + start, start, start + 10)
        seen = heat(run, "rank", METRICS[1])
        np.testing.assert_array_equal(seen.values, known.want[1, : start + 10].T)
        until = seal(known.folder.root)
        if until is not None:
            known.journal.append("sealed", until=until)
            drop_sealed_parts(known.folder.root)
        most = max(most, run._telemetry.tail.windows["rank"].length)
    assert most <= 3
    assert len(run._telemetry.tail.parts) <= 3


def test_what_was_read_is_not_read_again(known, monkeypatch):
    known.write(1, 0, 100)
    run = open_run(known.folder.root)
    run.grid("rank")
    taken = []
    take = Window.take
    monkeypatch.setattr(
        Window,
        "take",
        lambda self, rows, part: taken.append(sum(map(len, rows.values()))) or take(self, rows, part),
    )
    known.write(2, 100, 101)
    assert run.grid("rank").values.shape[1] == 101
    assert taken == [2]


def test_a_sample_that_single_precision_cannot_hold_is_infinite(known):
    writer = BlockLogWriter(known.telemetry, 1)
    identity, record = encode_schema("n", "rank", 1.0, [0], [{"name": "a", "unit": "", "source": ""}])
    writer.append(record + encode_grid(identity, T0, [1e300]) + encode_grid(identity, T0 + 1, [-1e300]))
    writer.close()
    assert open_run(known.folder.root).grid("rank").values[0, :, 0].tolist() == [np.inf, -np.inf]


def test_the_first_samples_of_a_wrong_clock_do_not_hide_the_others(known):
    known.write(1, 0, 100)
    run = open_run(known.folder.root)
    writer = BlockLogWriter(known.telemetry, 2)
    identity, record = encode_schema("local-9", "rank", 1.0, [9], [{"name": METRICS[0], "unit": "", "source": ""}])
    writer.append(record + encode_grid(identity, 5.0, [1.0]))
    writer.close()
    assert run.grid("rank").times[0] == T0
    assert [found.what for found in run.missing()] == ["1 samples of rank"]


@pytest.mark.parametrize("cadence", [0.1, 1.0, 10.0])
def test_the_origin_fits_all_bins(cadence):
    axes = Axes(cadence)
    axes.settle(np.array([T0, T0 + 5]), np.array([1, 1]))
    assert axes.origin % 1200 == 0
    assert all(axes.origin % factor == 0 for factor in axes.levels.values())
    assert axes.origin * cadence < T0 < axes.end * cadence
