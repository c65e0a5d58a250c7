"""The loading of data in a report: said in words, drawn where it was told, never made up."""

from __future__ import annotations

import json
from pathlib import Path

from cordee.faces.report import render
from cordee.systems.data.loading import loading_view
from cordee.systems.data.report.loading import loading_charts
from support.made.loading import MadeLoading

WAITING = {"wait_seconds": 0.25, "busy_seconds": 0.9, "batches": 10, "samples": 320, "bytes": 16e6, "opens": 320}
REQUESTS = {32768: 64.0, 131072: 256.0}


def test_a_report_says_and_draws_what_was_waited_for(tmp_path: Path) -> None:
    made = MadeLoading(tmp_path)
    made.plan(licence="research only")
    for rank in range(4):
        made.load(rank, each_s=WAITING, requests=REQUESTS)
    waits, requests = loading_charts(loading_view(made.read()), None)
    assert "corpus: wait for data in a step, in milliseconds" in waits[1]
    assert "the rank that waited most" in waits[1]
    assert requests[1].count("<rect") == 3
    assert "5,120 of at most 32 KiB, 20,480 of at most 128 KiB" in requests[1]
    page = render(made.folder.root).read_text()
    assert "Loading of data" in page
    assert "the ranks waited 25 % of the time for data" in page
    assert "licence: research only" in page
    assert "<code>cordee data pack /store/corpus --to FOLDER</code>" in page
    text = (made.folder.report / "report.txt").read_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "Loading of data" in text
    (one,) = json.loads((made.folder.report / "report.json").read_text())["loading"]["sets"]
    assert (one["name"], one["median_request_bytes"]) == ("corpus", 131072)
    assert "curve" not in one


def test_a_data_set_that_nobody_told_of_is_named_and_not_drawn(tmp_path: Path) -> None:
    made = MadeLoading(tmp_path)
    made.plan()
    assert loading_charts(loading_view(made.read()), None) == []
    render(made.folder.root)
    assert "nothing was told of its loading" in " ".join((made.folder.report / "report.txt").read_text().split())


def test_a_run_without_data_has_no_section(tmp_path: Path) -> None:
    made = MadeLoading(tmp_path)
    made.read()
    assert "Loading of data" not in render(made.folder.root).read_text()
