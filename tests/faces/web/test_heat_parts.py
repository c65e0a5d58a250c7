"""The heat map's arithmetic, run in Chromium and held against numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cordee.runs.folder import RunFolder
from support.made.runs import MadeRun, write_run
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns

pytestmark = pytest.mark.timeout(300)

SOURCE = """
const {{ Source }} = await import("/static/heat/source.js");
const stats = await import("/static/heat/stats.js");
const paint = await import("/static/heat/paint.js");
const from = (rows, times, step, counts) => new Source({{
  cadence: step, counts, shapes: {{ values: [rows.length, times.length] }},
  arrays: {{ times: Float64Array.from(times), values: Float32Array.from(rows.flat().map((one) => one === null ? NaN : one)) }},
}});
{body}
"""


@pytest.fixture(scope="module")
def tab(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedPage]:
    folder: RunFolder = write_run(
        tmp_path_factory.mktemp("parts"), MadeRun(8, 20, metrics={"node": ("cpu_busy_ratio",)})
    )
    with ServedRuns(folder.root.parent) as served, chromium() as browser:
        watched = WatchedPage(browser, served.url)
        watched.page.goto(f"{served.url}/")
        yield watched
        watched.close()


def run(tab: WatchedPage, body: str, given: Any = None) -> Any:
    return tab.page.evaluate(f"async (given) => {{ {SOURCE.format(body=body)} }}", given)


def plain(values: np.ndarray) -> list[Any]:
    """Return a matrix for JavaScript: NaN as null."""
    return [[None if np.isnan(one) else float(one) for one in row] for row in values]


def test_medians_and_spreads_of_peers_are_those_of_numpy(tab: WatchedPage) -> None:
    random = np.random.default_rng(7)
    values = random.normal(5, 2, (40, 37)).astype(np.float32)
    values[3] = np.nan
    values[5, 4] = np.nan
    peers = [at % 3 for at in range(40)]
    body = """
    const source = from(given.rows, [...given.rows[0].keys()], 1);
    const peers = { of: Uint16Array.from(given.peers), count: 3 };
    let found = stats.columnStats(source, peers, 0, null, 0);
    found = stats.columnStats(source, peers, 0, found, 20);
    return { median: [...found.median], spread: [...found.spread] };
    """
    found = run(tab, body, {"rows": plain(values), "peers": peers})
    for group in range(3):
        of_group = values[group::3]
        for column in range(37):
            known = np.sort(of_group[:, column][~np.isnan(of_group[:, column])])
            middle = known[len(known) // 2]  # of an even number, the upper of the two in the middle
            apart = np.sort(np.abs(known - middle))
            assert found["median"][group * 37 + column] == pytest.approx(middle)
            assert found["spread"][group * 37 + column] == pytest.approx(1.4826 * apart[len(apart) // 2], rel=1e-5)


def test_rows_are_ordered_within_their_groups_and_those_without_a_value_come_last(tab: WatchedPage) -> None:
    body = """
    const { order, groups } = stats.ordered(Int32Array.from([0, 1, 2, 3, 4, 5]), Int32Array.from([1, 0, 1, 0, 1, 0]),
      Float32Array.from([2, 5, NaN, 7, 9, 5]), true);
    const turned = stats.ordered(Int32Array.from([2, 1, 0]), null, null, true);
    return { order: [...order], groups, turned: [...turned.order] };
    """
    found = run(tab, body)
    assert found["order"] == [3, 1, 5, 4, 0, 2]
    assert found["groups"] == [{"key": 0, "start": 0, "stop": 3}, {"key": 1, "start": 3, "stop": 6}]
    assert found["turned"] == [0, 1, 2]


def test_the_first_bad_column_is_a_gap_an_infinity_or_far_from_the_peers(tab: WatchedPage) -> None:
    values = np.tile(np.arange(1, 7, dtype=np.float32), (9, 1)) + np.linspace(0, 0.1, 9, dtype=np.float32)[:, None]
    values[1, 2:4] = np.nan
    values[2, 4] = np.inf
    values[3, 5] = 100
    values[:, 1] = np.nan  # nobody was measured: nobody is to blame
    body = """
    const source = from(given.map((row) => row.map((one) => (one === "inf" ? Infinity : one))), [0, 1, 2, 3, 4, 5], 1);
    const peers = { of: new Uint16Array(9), count: 1 };
    const found = stats.rowStats(source, peers, stats.columnStats(source, peers, 0.01, null));
    return [...found.firstBad].map((one) => (one === Infinity ? -1 : one));
    """
    rows = [["inf" if one is not None and np.isinf(one) else one for one in row] for row in plain(values)]
    assert run(tab, body, rows) == [-1, 2, 4, 5, -1, -1, -1, -1, -1]


def test_new_columns_replace_the_late_ones_and_gaps_stay_missing(tab: WatchedPage) -> None:
    body = """
    const source = from([[1, 2, 3], [4, 5, 6]], [10, 11, 12], 1);
    const next = (rows, times) => ({ cadence: 1, shapes: { values: [2, times.length] },
      arrays: { times: Float64Array.from(times), values: Float32Array.from(rows.flat()) } });
    const at = source.append(next([[30, 40], [60, 70]], [12, 13]));
    source.append(next([[90], [91]], [16]));
    const other = source.append({ ...next([[1], [1]], [17]), cadence: 5 });
    const rows = [0, 1].map((row) => [...source.data.subarray(row * source.stride, row * source.stride + source.cols)].map((one) => Number.isNaN(one) ? null : one));
    return { at, other, rows, cols: source.cols, t1: source.t1 };
    """
    found = run(tab, body)
    assert found == {
        "at": 2, "other": -1, "cols": 7, "t1": 17,
        "rows": [[1, 2, 30, 40, None, None, 90], [4, 5, 60, 70, None, None, 91]],
    }  # fmt: skip


def test_old_columns_go_when_they_are_more_than_those_that_stay(tab: WatchedPage) -> None:
    body = """
    const times = [...Array(300).keys()];
    const source = from([times, times.map((one) => -one)], times, 1);
    const small = source.trim(100);
    const large = source.trim(200);
    return { small, large, cols: source.cols, t0: source.t0, first: source.data[0], last: source.data[source.stride + source.cols - 1] };
    """
    assert run(tab, body) == {"small": False, "large": True, "cols": 100, "t0": 200, "first": 200, "last": -299}


@pytest.mark.parametrize(("kind", "value"), [("far", 9.0), ("mean", 4.5), ("min", 2.0), ("max", 9.0)])
def test_cells_that_share_a_pixel_become_one_as_asked(tab: WatchedPage, kind: str, value: float) -> None:
    body = """
    const source = from([[2], [3], [4], [9]], [0], 1);
    source.middle = Float32Array.from([3]);
    const out = new Uint32Array(1);
    const look = { colours: Uint32Array.from([...Array(256).keys()]), marks: { missing: [1000, 1000] }, low: 0, high: 255, kind: given };
    paint.paint(source, null, 4, { t0: 0, t1: 1, r0: 0, r1: 4 }, 1, 1, look, out);
    source.data[0] = NaN;
    const gap = new Uint32Array(1);
    paint.paint(source, null, 4, { t0: 0, t1: 1, r0: 0, r1: 4 }, 1, 1, look, gap);
    return [out[0], gap[0]];
    """
    whole, gap = run(tab, body, kind)
    assert whole == round(value + 1e-9)
    assert (gap == 1000) == (kind == "far")  # one that is missing shows, unless a mean or an end was asked for


def test_what_lies_outside_of_the_samples_is_left_clear(tab: WatchedPage) -> None:
    body = """
    const source = from([[1, 1]], [10, 11], 1);
    source.middle = Float32Array.from([1, 1]);
    const out = new Uint32Array(4);
    const look = { colours: new Uint32Array(256).fill(7), marks: { missing: [1, 1] }, low: 0, high: 2, kind: "far" };
    paint.paint(source, null, 1, { t0: 9, t1: 13, r0: 0, r1: 1 }, 4, 1, look, out);
    return [...out];
    """
    assert run(tab, body) == [0, 7, 7, 0]
