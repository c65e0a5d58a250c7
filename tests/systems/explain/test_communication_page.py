"""The page "Communication": who broke the collective, and the matrix on its canvas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from cordee.runs.folder import RunFolder
from support.flight.dumps import CpuStall, FlightEngine, changed
from support.flight.faults import ddp, three_dimensional
from support.made.runs import MadeRun, write_run
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, RunFolder]:
    """A run that hangs, one with three dimensions and a dump missing, one whose dumps cannot be read, one without dumps."""
    parent = tmp_path_factory.mktemp("runs")
    made = {name: write_run(parent, MadeRun(8, 20, name=name), seal=False) for name in ("hangs", "torn", "none")}
    made["wide"] = write_run(parent, MadeRun(16, 20, name="wide", placed=False), seal=False)
    training = ddp(8, 8)
    engine = FlightEngine(training.groups, changed(training.programs, 3, 20, CpuStall(), cut=0))
    engine.run().write(made["hangs"].root / "flight" / "attempt-1")
    wide = three_dimensional(2, 2, 4, 2)
    FlightEngine(wide.groups, wide.programs).run().write(made["wide"].root / "flight" / "attempt-1", without=[5])
    (made["torn"].root / "flight" / "attempt-1").mkdir(parents=True)
    (made["torn"].root / "flight" / "attempt-1" / "rank-0.pkl").write_bytes(b"\x80\x02}q\x00")
    return made


@pytest.fixture(scope="module")
def server(runs) -> Iterator[ServedRuns]:
    with ServedRuns(runs["wide"].root.parent) as server:
        yield server


@pytest.fixture
def tab(real, server) -> Iterator[WatchedPage]:
    with chromium() as browser:
        tab = WatchedPage(browser, server.url, viewport={"width": 1280, "height": 1700})
        yield tab
        tab.close()
    assert not tab.faults


def answer(server: ServedRuns, run: str, **query: str) -> dict[str, Any]:
    """What the server says once it has read the dumps."""
    with httpx.Client(base_url=server.url, timeout=60.0) as client:
        while True:
            found: dict[str, Any] = client.get(f"/api/runs/{run}/flight", params=query).json()
            if found["status"] != "computing":
                return found
            time.sleep(0.1)


def test_the_answer_has_one_dimension_at_a_time(runs, server):
    most = answer(server, runs["wide"].id)
    assert most["dimension"] == most["traffic"]["dimensions"][0]["name"] == "tensor"
    assert all("sent" not in one for one in most["traffic"]["dimensions"])
    other = answer(server, runs["wide"].id, dimension="pipeline")
    assert other["dimension"] == "pipeline"
    assert {abs(sender - receiver) for sender, receiver, _ in other["sent"]} == {8}
    assert other["flight"]["missing_ranks"] == [5]


def test_what_cannot_be_read_is_said(runs, server):
    torn = answer(server, runs["torn"].id)
    assert (torn["status"], torn["traffic"], torn["flight"]["dumps"]) == ("ready", None, 0)
    none = answer(server, runs["none"].id)
    assert (none["status"], none["missing"][0]["why"]) == ("impossible", "this run has no dumps")


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_the_page_names_the_culprit_and_draws_the_matrix(runs, tab):
    page = tab.open(f"#/run/{runs['hangs'].id}/communication")
    expect(page.locator(".note.bad")).to_contain_text("cpu-stall: rank 3 has not called all_reduce 18")
    expect(page.locator(".note.bad")).to_contain_text("/home/ada/train.py:31")
    expect(page.locator("canvas")).to_be_visible()
    table = page.get_by_role("region", name="Most sent").locator("tbody tr")
    expect(table).to_have_count(8)
    expect(page.locator("main")).to_contain_text("a ring in the order of the group's ranks")


def test_the_matrix_is_read_zoomed_and_changed_by_dimension(runs, tab):
    page = tab.open(f"#/run/{runs['wide'].id}/communication")
    canvas = page.locator("canvas")
    expect(canvas).to_be_visible()
    expect(page.locator("main")).to_contain_text("No dump of 1 rank: 5")
    expect(page.get_by_text("16 × 16")).to_be_visible()
    canvas.focus()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["width"] / 3)
    expect(page.locator(".says")).to_contain_text("→")
    page.keyboard.press("+")
    expect(page.get_by_text("rows 4 – 11, columns 4 – 11")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_text("rows 6 – 13, columns 4 – 11")).to_be_visible()
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["width"] / 3)
    expect(page.get_by_text("16 × 16")).to_be_visible()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["width"] / 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["width"] / 2)
    page.mouse.up()
    expect(page.get_by_text("16 × 16")).to_have_count(0)
    page.locator("main select").select_option("pipeline")
    expect(page.get_by_role("region", name="Most sent").locator("tbody tr").first).to_contain_text("rank")
    page.get_by_role("button", name="Waits").click()
    expect(page.locator("main")).to_contain_text("ranks number them each for itself")


def test_a_run_without_dumps_has_no_tab(runs, tab):
    page = tab.open(f"#/run/{runs['none'].id}")
    expect(page.locator("[data-tab]", has_text="Correlation")).to_have_count(1)
    expect(page.locator("[data-tab]", has_text="Communication")).to_have_count(0)
    tab.open(f"#/run/{runs['none'].id}/communication")
    expect(page.locator("main")).to_contain_text("this run has no dumps")
