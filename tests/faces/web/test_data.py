"""The loading of data over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.made.loading import MadeLoading
from support.servers.serving import ServedRuns

WAITING = {"wait_seconds": 0.25, "busy_seconds": 0.9, "batches": 10, "samples": 320, "bytes": 16e6}


@pytest.fixture(scope="module")
def of_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Asks a server for parts of a made run."""
    runs: Path = tmp_path_factory.mktemp("runs")
    made = MadeLoading(runs)
    made.plan(name="<b>", place="/store/<b>")
    for rank in range(4):
        made.load(rank, each_s=WAITING, requests={65536: 320.0}, name="<b>")
    made.read()
    with (
        ServedRuns(runs) as server,
        httpx.Client(base_url=f"{server.url}/api/runs/{made.folder.id}", timeout=60.0) as client,
    ):
        yield client


def test_waits_rates_and_requests_are_told_with_what_to_change(of_run: httpx.Client) -> None:
    answer = of_run.get("/data").json()
    (one,), (planned,), (finding,) = answer["sets"], answer["planned"], answer["findings"]
    assert (one["name"], planned["place"], one["ranks"]) == ("<b>", "/store/<b>", 4)
    assert one["wait_share"] == pytest.approx(0.25)
    assert one["requests"] == [{"le_bytes": 65536, "count": 4 * 20 * 320}]
    assert finding["evidence"] == {"page": "data", "query": {}}
    assert [entry["what"] for entry in answer["missing"]] == ["the limit of <b>"]


def test_a_stretch_has_finer_curves_and_the_same_totals(of_run: httpx.Client) -> None:
    whole = of_run.get("/data", params={"points": 2}).json()
    (coarse,) = whole["sets"]
    asked = {"start": whole["start"] + 5, "stop": whole["start"] + 9, "points": 100}
    (fine,) = of_run.get("/data", params=asked).json()["sets"]
    assert (len(coarse["curve"]["times"]), len(fine["curve"]["times"])) == (2, 4)
    assert fine["curve"]["wait_per_step_s"] == pytest.approx([0.025] * 4)
    assert fine["totals"] == coarse["totals"]


def test_a_run_document_names_the_data_sets_of_the_job(of_run: httpx.Client) -> None:
    assert [one["name"] for one in of_run.get("", follow_redirects=True).json()["data_sets"]] == ["<b>"]
