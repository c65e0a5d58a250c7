"""The live view of samples: rows over all devices, who stands out, stages; at any size, in any terminal."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
from rich.console import Console

from cordee.core.terminal.draw import sparkline
from cordee.core.terminal.quantities import quantity
from cordee.faces.cli.watch.samples import RESOURCES
from cordee.faces.cli.watch.screen import WatchScreen, watch
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_facts, encode_grid, encode_schema
from cordee.telemetry.node.catalogue import METRICS
from support.made.runs import MadeRun, write_run

SECONDS = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a made run of 64 GPUs in four stages, one of whose nodes is slow; not sealed."""
    folder = write_run(tmp_path_factory.mktemp("made"), MadeRun(64, SECONDS), seal=False)
    told = BlockLogWriter(folder.telemetry, 2)
    for node in range(16):
        places = {
            str(rank): {"place": {"pp": rank // 16, "dp": rank % 16}, "sizes": {"pp": 4, "dp": 16}, "place_attempt": 2}
            for rank in range(4 * node, 4 * node + 4)
        }
        told.append(encode_facts(f"nid{node:06d}", "rank", 1_800_000_000.0, places, {}))
    told.close()
    return folder


def seen(folder):
    view = WatchScreen(folder)
    view.read()
    return view


def drawn(view, height=40, width=140):
    console = Console(width=width, height=height, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(view.picture(height, width))
    return capture.get()


def test_a_row_has_now_mean_spread_and_who_stands_out_over_all_devices(made):
    view = seen(made)
    grid = view.samples.run.grid("gpu", ["gpu_sm_ratio"]).values[0]
    row = next(row for row in view.samples.rows if row.metric == "gpu_sm_ratio")
    assert row.devices == np.isfinite(grid[-15:]).any(axis=0).sum()
    assert row.now == pytest.approx(np.nanmean(grid[-1]), rel=1e-3)
    assert (row.low, row.high) == pytest.approx((np.nanmin(grid[-1]), np.nanmax(grid[-1])), rel=1e-3)
    assert row.mean == pytest.approx(np.nanmean(grid), rel=0.02)
    text = drawn(view)
    for part in ("GPU: SMs", "GPU: memory", "power", "CPU", "fabric", "lowest - highest", "loss", "tokens_per_s"):
        assert part in text


def test_ranks_that_differ_come_first_with_what_they_differ_in(made):
    view = seen(made)
    slow = {one.rank for one in view.samples.differing}
    assert slow
    rows = drawn(view).splitlines()
    first = rows[next(at for at, row in enumerate(rows) if row.startswith("rank ")) + 1]
    assert int(first.split()[0]) in slow
    assert "others" in first


def test_stages_are_known_where_ranks_told_their_places(made):
    view = seen(made)
    stages = view.samples.stages()
    assert [(stage.name, stage.ranks) for stage in stages] == [(f"pp {at}", 16) for at in range(4)]


def test_the_view_is_never_larger_than_the_screen(made):
    view = seen(made)
    for height, width in ((12, 40), (24, 80), (50, 200)):
        lines = drawn(view, height, width).splitlines()
        assert len(lines) <= height
        assert max(len(line) for line in lines) <= width


def test_new_samples_are_in_the_rows_of_the_next_read(tmp_path):
    folder = RunFolder.create(tmp_path, "w-20260101T000000Z-abcd")
    JournalWriter(folder.journal, "supervisor-1", 1).append("supervisor_started", pid=1, host="h", segment=1)
    writer = BlockLogWriter(folder.telemetry, 1)
    schema, record = encode_schema(
        "n-0", "node", 1.0, ["n-0"], [{"name": "cpu_busy_ratio", "unit": "ratio", "source": "proc/stat"}]
    )
    began = 1_800_000_000.0
    for second in range(3):
        writer.append(record + encode_grid(schema, began + second, [0.25]))
    writer.flush()
    view = seen(folder)
    assert view.samples.rows[0].now == 0.25
    writer.append(encode_grid(schema, began + 3, [0.75]) + encode_grid(schema, began + 5, [math.nan]))
    writer.flush()
    view.samples.read(None, ended=False, now=True)
    row = view.samples.rows[0]
    assert row.now == 0.75
    assert row.mean == pytest.approx(0.375)
    assert row.line(40) == [0.25, 0.25, 0.25, 0.75]


def test_a_node_whose_clock_is_a_day_ahead_does_not_lead_the_others(tmp_path):
    folder = RunFolder.create(tmp_path, "w-20260101T000000Z-abcd")
    JournalWriter(folder.journal, "supervisor-1", 1).append("supervisor_started", pid=1, host="h", segment=1)
    writer = BlockLogWriter(folder.telemetry, 1)
    busy = [{"name": "cpu_busy_ratio", "unit": "ratio", "source": "proc/stat"}]
    began = 1_800_000_000.0

    def sample(second):
        for node, ahead_s, value in (("n-0", 0.0, 0.2), ("n-1", 0.4, 0.4), ("n-2", 86400.0, 1.0)):
            schema, record = encode_schema(node, "node", 1.0, [node], busy)
            writer.append(record + encode_grid(schema, began + second + ahead_s, [value]))
        writer.flush()

    for second in range(30):
        sample(second)
    view = seen(folder)
    row = view.samples.rows[0]
    assert (row.devices, row.now) == (2, pytest.approx(0.3))
    assert max(row.history) == pytest.approx(began + 29, abs=20)
    for second in range(30, 50):
        sample(second)
    view.samples.read(None, ended=False, now=True)
    assert max(view.samples.rows[0].history) == began + 49
    assert view.samples.trouble == ""


def test_a_damaged_block_log_is_read_as_far_as_it_goes(made, tmp_path):
    copy = RunFolder(shutil.copytree(made.root, tmp_path / made.id))
    part = sorted(copy.telemetry.glob("blocks-*.log"))[0]
    data = part.read_bytes()
    part.write_bytes(data[: len(data) // 2] + b"\xff" * 1000 + data[len(data) // 2 + 1000 : -777])
    view = seen(copy)
    assert view.samples.rows
    assert drawn(view)


def test_a_run_without_samples_has_no_rows(tmp_path):
    folder = RunFolder.create(tmp_path, "w-20260101T000000Z-abcd")
    JournalWriter(folder.journal, "client", 0).append("submitted", backend="local", nodes=1, ranks=1)
    view = seen(folder)
    assert view.samples.rows == []


def test_names_of_devices_are_not_read_by_the_terminal(tmp_path):
    folder = RunFolder.create(tmp_path, "w-20260101T000000Z-abcd")
    JournalWriter(folder.journal, "supervisor-1", 1).append("supervisor_started", pid=1, host="h", segment=1)
    writer = BlockLogWriter(folder.telemetry, 1)
    names = ["\x1b[2J[/red]", "n\n2"]
    schema, record = encode_schema(
        "n", "node", 1.0, names, [{"name": "cpu_busy_ratio", "unit": "ratio", "source": "proc/stat"}]
    )
    writer.append(record + encode_grid(schema, 1_800_000_000.0, [0.25, math.inf]))
    writer.flush()
    view = seen(folder)
    assert "\x1b" not in drawn(view)


def test_the_json_document_has_the_rows(made, capsys):
    document = json.loads(json.dumps(seen(made).document(), allow_nan=False, default=str))
    assert document["schema"] == "cordee.watch/1"
    assert document["state"] == "finished"
    row = next(row for row in document["rows"] if row["metric"] == "gpu_sm_ratio")
    assert row["devices"] >= 63
    assert row["far"].startswith("nid")
    assert len(row["history"]) <= 40
    assert document["differing"][0]["deviations"]
    assert document["stages"][0]["ranks"]
    assert document["logged"]["loss"]["last"]


def test_one_picture_of_a_large_run_fits_a_pipe(made, capsys):
    watch(made.root, once=True)
    assert len(capsys.readouterr().out.splitlines()) <= 50


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.375, "ratio", "37.5 %"),
        (math.nan, "ratio", "-"),
        (math.inf, "bytes", "inf"),
        (2.5e9, "bytes/s", "2.5 GB/s"),
        (512.0, "watts", "512 W"),
        (1.98e9, "hertz", "1.98 GHz"),
        (3.0, "cores", "3"),
        (7.0, "processes", "7 processes"),
    ],
)
def test_quantities_have_their_unit(value, unit, text):
    assert quantity(value, unit) == text


def test_a_sparkline_may_begin_at_nothing():
    assert sparkline([1.0, 2.0], low=0.0) == "▅█"


def test_every_metric_of_a_row_is_a_standard_one():
    assert {metric for _, choices in RESOURCES for _, metric in choices} <= set(METRICS)
