from __future__ import annotations

import numpy as np
import pytest

from cordee.core.errors import UsageError
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid, encode_schema
from cordee.telemetry.store.reader import open_run
from cordee.telemetry.store.seal import seal
from cordee.telemetry.store.views import bands, heat, lines, step_for

T0 = 1_700_000_000.0
NAMES = ["metric_0_ratio", "metric_1_ratio", "metric_2_ratio"]


@pytest.fixture(params=["tail", "both", "sealed"])
def run(known, request):
    """Return the known run, of which nothing, a half, or all is sealed."""
    known.write(1, 0, 77)
    known.write(2, 77)
    if request.param != "tail":
        seal(known.folder.root, final=request.param == "sealed")
    return open_run(known.folder.root)


def write(known, rows, *, devices=(0, 1, 2, 3), cadence=1.0, epoch=1):
    """Append (time, values of one metric) of one node."""
    writer = BlockLogWriter(known.telemetry, epoch)
    schema, record = encode_schema("n", "rank", cadence, devices, [{"name": "a", "unit": "watts", "source": "s"}])
    writer.append(record + b"".join(encode_grid(schema, moment, values) for moment, values in rows))
    assert writer.close()
    return open_run(known.folder.root)


def in_columns(known, metric, begin, step, count, function):
    """Return [device, column] of the known values, the columns beginning at T0 + begin."""
    want = np.full((4, count), np.nan)
    for column in range(count):
        low, high = max(0, begin + column * step), max(0, begin + (column + 1) * step)
        inside = known.want[metric, low:high]
        with np.errstate(all="ignore"):
            for device in range(4):
                values = inside[:, device][~np.isnan(inside[:, device])]
                want[device, column] = function(values) if len(values) else np.nan
    return want


def test_with_room_for_every_sample_a_heat_map_is_the_samples(known, run):
    seen = heat(run, "rank", NAMES[1])
    assert seen.devices == [0, 1, 2, 3]
    assert seen.counts == [1, 1, 1, 1]
    assert (seen.cadence, seen.unit, seen.source) == (1.0, "ratio", "test")
    np.testing.assert_array_equal(seen.times, T0 + np.arange(known.seconds))
    np.testing.assert_array_equal(seen.values, known.want[1].T)
    assert seen.low == pytest.approx(np.nanmin(known.want[1]))
    assert seen.high == pytest.approx(np.nanmax(known.want[1]))
    assert seen.values.dtype == np.float32
    assert seen.values.flags.c_contiguous


@pytest.mark.parametrize(
    ("columns", "step", "begin"), [(80, 2, 0), (32, 5, 0), (16, 10, 0), (11, 15, -5), (8, 20, 0), (4, 60, -20)]
)
@pytest.mark.parametrize(
    ("statistic", "function"), [("mean", np.mean), ("min", np.min), ("max", np.max), ("count", len)]
)
def test_columns_hold_all_samples_in_their_time(known, run, columns, step, begin, statistic, function):
    seen = heat(run, "rank", NAMES[1], columns=columns, statistic=statistic)
    assert seen.cadence == step
    assert seen.times[0] == T0 + begin
    assert len(seen.times) <= columns
    want = in_columns(known, 1, begin, step, len(seen.times), function)
    np.testing.assert_allclose(seen.values, want, rtol=1e-5)


def test_the_time_asked_for_is_shown_also_where_nothing_was_measured(run, known):
    seen = heat(run, "rank", NAMES[0], T0 + 140, T0 + 200)
    assert seen.times[0] == T0 + 140
    assert seen.times[-1] == T0 + 199
    np.testing.assert_array_equal(seen.values[:, :10], known.want[0, 140:].T)
    assert np.isnan(seen.values[:, 10:]).all()
    before = heat(run, "rank", NAMES[0], T0 - 100, T0 - 50)
    assert before.values.shape == (4, 50)
    assert np.isnan(before.values).all()
    assert np.isnan(before.low)


def test_neighbours_share_a_row_where_there_are_fewer_rows_than_devices(run, known):
    seen = heat(run, "rank", NAMES[0], rows=3)
    assert seen.devices == [0, 2]
    assert seen.counts == [2, 2]
    np.testing.assert_allclose(seen.values[1], known.want[0, :, 2:].mean(axis=1), rtol=1e-6)
    most = heat(run, "rank", NAMES[0], rows=1, statistic="max")
    np.testing.assert_allclose(most.values[0], known.want[0].max(axis=1))
    np.testing.assert_array_equal(heat(run, "rank", NAMES[0], rows=1, statistic="count").values, 4)


def test_bands_are_the_percentiles_of_the_devices(run, known):
    seen = bands(run, "rank", NAMES[1])
    want = np.nanpercentile(known.want[1], [0, 5, 25, 50, 75, 95, 100], axis=1)
    got = [seen.min, seen.p5, seen.p25, seen.p50, seen.p75, seen.p95, seen.max]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(seen.mean, np.nanmean(known.want[1], axis=1), rtol=1e-5)
    np.testing.assert_array_equal(seen.count, (~np.isnan(known.want[1])).sum(axis=1))


def test_bands_of_nothing_are_missing_and_count_zero(known):
    run = write(known, [(T0, [1.0, 2.0, 3.0, float("nan")]), (T0 + 2, [float("inf"), 1.0, 2.0, float("-inf")])])
    seen = bands(run, "rank", "a")
    assert seen.count.tolist() == [3.0, 0.0, 4.0]
    assert np.isnan(seen.p50[1])
    assert np.isnan(seen.mean[1])
    assert seen.p50[0] == 2.0
    assert (seen.min[2], seen.max[2], seen.mean[2]) == (-np.inf, np.inf, 1.5)


def test_the_range_of_a_heat_map_is_finite(known):
    run = write(known, [(T0, [1.0, float("inf"), float("-inf"), float("nan")]), (T0 + 1, [5.0, 2.0, 3.0, 4.0])])
    seen = heat(run, "rank", "a")
    assert (seen.low, seen.high) == (1.0, 5.0)
    assert seen.values[1, 0] == np.inf


def test_lines_are_of_the_devices_asked_for(run, known):
    seen = lines(run, "rank", NAMES[2], ["3", 1], points=32)
    assert seen.devices == [3, 1]
    for got, function in ((seen.mean, np.mean), (seen.low, np.min), (seen.high, np.max)):
        want = in_columns(known, 2, 0, 5, 30, function)[[3, 1]]
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_run_that_grows_keeps_its_columns(known):
    known.write(1, 0, 60)
    run = open_run(known.folder.root)
    first = heat(run, "rank", NAMES[0], columns=40)
    known.write(2, 60, 79)
    second = heat(run, "rank", NAMES[0], columns=40)
    assert first.cadence == second.cadence == 2
    np.testing.assert_array_equal(first.values, second.values[:, : first.values.shape[1]])
    assert second.values.shape[1] == 40


def test_steps_fit_the_cadence_and_the_time():
    assert step_for(1.0, 600, 600) == 1.0
    assert step_for(1.0, 601, 600) == 2
    assert step_for(1.0, 86400, 600) == 300
    assert step_for(3.0, 600, 100) == 15
    assert step_for(0.1, 10, 50) == 0.2
    assert step_for(0.7, 600, 100) == pytest.approx(6.3)
    assert step_for(1.0, 400 * 86400, 100) == 4 * 86400


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"metric": "x"}, "no such metric"),
        ({"group": "gpu"}, "no samples of this group"),
        ({"statistic": "p5"}, "no such statistic"),
        ({"columns": 0}, "has columns"),
        ({"rows": 0}, "has rows"),
        ({"start": float("nan")}, "no time"),
        ({"start": T0, "stop": T0 - 1}, "ends before"),
    ],
)
def test_what_makes_no_sense_is_refused(known, arguments, text):
    known.write(1, 0, 5)
    with pytest.raises(UsageError, match=text):
        heat(open_run(known.folder.root), **{"group": "rank", "metric": NAMES[0], **arguments})


def test_a_device_that_is_not_there_is_refused(known):
    known.write(1, 0, 5)
    with pytest.raises(UsageError, match="no such device"):
        lines(open_run(known.folder.root), "rank", NAMES[0], [17])
