"""What a run's report says of its dumps and of its traces."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from cordee.runs.folder import RunFolder
from cordee.runs.state import RunState
from cordee.systems.explain.flight.report import CommunicationSection
from cordee.systems.explain.traces.report import TracesSection
from cordee.systems.explain.traces.views import traces_of
from support.flight.dumps import FlightEngine
from support.flight.faults import three_dimensional
from support.made.runs import MadeRun, write_run
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns


def reported(root: Any) -> Any:
    return SimpleNamespace(run=SimpleNamespace(folder=RunFolder(root)), state=RunState("r"))


def profile(root: Any, number: int, document: Any) -> None:
    folder = root / "profiles" / str(number)
    folder.mkdir(parents=True)
    (folder / "profile.json").write_text(document if isinstance(document, str) else json.dumps(document))
    (folder / "rank-0.json.gz").write_bytes(b"12345")


def test_traces_are_listed_the_newest_first(tmp_path):
    about = {"rank": 0, "state": "written", "file": "rank-0.json.gz", "steps": 5, "before": 4}
    profile(tmp_path, 1, {"tool": "torch", "attempt": 1, "ranks": [about]})
    profile(tmp_path, 2, {"tool": "py-spy", "attempt": 2, "ranks": [{**about, "steps": None}]})
    section = TracesSection(reported(tmp_path))
    assert section.lines()[1:] == [
        "  profile 2: rank 0 by py-spy: profiles/2/rank-0.json.gz (5 B)",
        "  profile 1: rank 0 by torch, steps 5 to 9: profiles/1/rank-0.json.gz (5 B)",
    ]
    assert [one["profile"] for one in section.document()] == [2, 1]
    assert "profiles/1/rank-0.json.gz" in section.html()


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[" * 100_000,
        "[]",
        {"ranks": 3},
        {"ranks": [{"rank": 0, "state": "written", "file": "../../secret"}, {"rank": "0", "state": "written"}, None]},
        {"ranks": [{"rank": 0, "state": "written", "file": "rank-7.json.gz"}]},
        {"ranks": [{"rank": 0, "state": "failed", "file": "rank-0.json.gz"}]},
    ],
)
def test_what_is_no_profile_is_passed_over(tmp_path, document):
    profile(tmp_path, 1, document)
    assert traces_of(tmp_path) == []
    assert TracesSection(reported(tmp_path)).html() == ""


@pytest.mark.usefixtures("real")
def test_the_page_lists_them(tmp_path):
    run = write_run(tmp_path, MadeRun(4, 20), seal=False)
    about = {"rank": 2, "state": "written", "file": "rank-0.json.gz", "steps": 5, "before": 4}
    profile(run.root, 1, {"tool": "torch", "attempt": 1, "ranks": [about]})
    with ServedRuns(tmp_path) as server, chromium() as browser:
        told = httpx.get(f"{server.url}/api/runs/{run.id}/traces", timeout=60.0).json()
        assert (told["count"], told["traces"][0]["path"]) == (1, "profiles/1/rank-0.json.gz")
        tab = WatchedPage(browser, server.url, viewport={"width": 1280, "height": 900})
        row = tab.open(f"#/run/{run.id}/traces").get_by_role("region", name="Traces").locator("tbody tr")
        expect(row).to_contain_text("steps 5 to 9")
        expect(row).to_contain_text("profiles/1/rank-0.json.gz")
        tab.close()
        assert not tab.faults


def test_without_dumps_nothing_is_said_of_communication(tmp_path):
    section = CommunicationSection(reported(tmp_path))
    assert (section.document(), section.lines(), section.html(), section.missing) == (None, [], "", [])


def test_of_dumps_the_matrices_are_drawn_and_told(tmp_path):
    run = write_run(tmp_path, MadeRun(16, 20, placed=False), seal=False)
    wide = three_dimensional(2, 2, 4, 2)
    FlightEngine(wide.groups, wide.programs).run().write(run.root / "flight" / "attempt-1", without=[5])
    section = CommunicationSection(reported(run.root))
    dimensions = [one["name"] for one in section.document()["dimensions"]]
    page = section.html()
    assert page.count("data:image/png;base64,") == 2 * len(dimensions) >= 4
    assert all(f"<h3>{name}</h3>" in page for name in dimensions)
    assert any("most sent:" in line for line in section.lines())
    assert max(map(len, section.lines())) <= 80


def test_dumps_that_cannot_be_read_are_told_and_so_are_those_that_are_too_large(tmp_path):
    run = write_run(tmp_path, MadeRun(8, 20), seal=False)
    dump = run.root / "flight" / "attempt-1" / "rank-0.pkl"
    dump.parent.mkdir(parents=True)
    dump.write_bytes(b"\x80\x02}q\x00")
    assert CommunicationSection(reported(run.root)).html() == ""
    with dump.open("r+b") as file:
        file.truncate(40 << 20)
    (why,) = CommunicationSection(reported(run.root)).missing
    assert "cordee flight" in why
