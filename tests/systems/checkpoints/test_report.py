"""Checkpoint writes over throughput in a report: drawn where both are known, said in words, never made up."""

from __future__ import annotations

import json

from cordee.core.draw.charts import ChartLine, line_chart
from cordee.faces.report import render
from cordee.faces.report.data import collect
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.systems.checkpoints.pace import storage_view
from cordee.systems.checkpoints.report.figures import storage_charts
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events
from cordee.telemetry.store.reader import Run

T0 = 1_700_000_000.0


def made(tmp_path, *, saves=True):
    """Return a run of 100 steps, of which steps 39 and 79 are followed by a save of five seconds."""
    folder = RunFolder.create(tmp_path, "t-20260101T000000Z-abcd")
    folder.plan.write_text('{"steps": []}')
    JournalWriter(folder.journal, "supervisor-1", 1).append("supervisor_started", node="here", pid=1)
    log, now = BlockLogWriter(folder.telemetry, 1), T0
    for step in range(100):
        now += 1.0
        log.append(encode_events("local-0", 0, 1, 0, [(step * 256, now, step, {"loss": 1.0})]))
        if saves and step in (39, 79):
            now += 5.0
            said = {"cordee/checkpoint_seconds": 5.0, "cordee/checkpoint_bytes": 2e9}
            log.append(encode_events("local-0", 0, 1, 0, [(step * 256 + 128, now, step, said)]))
    assert log.close()
    return folder


def test_the_figure_shades_each_save_and_says_what_it_cost(tmp_path):
    folder = made(tmp_path)
    ((title, svg),) = storage_charts(storage_view(Run(folder)), None)
    assert "Steps per second" in title
    assert svg.count('class="shade"') == 2
    assert "training lost 5 s, 83 % of its throughput meanwhile" in svg
    page = render(folder.root).read_text()
    assert "Checkpoints and throughput" in page
    assert "2 checkpoints were written; 2 dented the throughput and cost 10" in page
    document = json.loads((folder.report / "report.json").read_text())["storage"]
    assert [checkpoint["step"] for checkpoint in document["checkpoints"]] == [39, 79]
    assert "rates" not in document
    assert "their cost" in (folder.report / "report.txt").read_text()


def test_what_cordee_itself_logs_is_not_among_the_users_metrics(tmp_path):
    assert sorted(collect(made(tmp_path)).curves) == ["loss"]


def test_without_checkpoints_there_is_no_figure(tmp_path):
    folder = made(tmp_path, saves=False)
    assert storage_charts(storage_view(Run(folder)), None) == []
    assert "Checkpoints and throughput" not in render(folder.root).read_text()


def test_a_shade_that_reaches_beyond_the_chart_ends_at_its_edge_and_one_outside_is_left_out():
    line = ChartLine("a", [0.0, 10.0], [1.0, 1.0])
    svg = line_chart("t", [line], x_label="s", shades=[(-5.0, 2.0, "<b>"), (20.0, 30.0, "no")])
    assert svg.count('class="shade"') == 1
    assert 'x="74.0"' in svg
    assert "<b>" not in svg
