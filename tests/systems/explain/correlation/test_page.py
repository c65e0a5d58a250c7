"""The page "Correlation": the same figures as `cordee correlate --json`, and charts in a browser."""

from __future__ import annotations

import json

import httpx
import pytest
from click.testing import CliRunner
from playwright.sync_api import expect

from cordee.faces.cli import cordee as main
from support.made.runs import MadeRun, write_run
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        "long": write_run(folder, MadeRun(gpus=16, seconds=600, name="long")),
        "short": write_run(folder, MadeRun(gpus=4, seconds=20, name="short")),
    }


@pytest.fixture(scope="module")
def server(runs):
    with ServedRuns(runs["long"].root.parent) as server:
        yield server


def test_the_page_has_the_figures_of_the_command(runs, server):
    said = json.loads(CliRunner().invoke(main, ["correlate", str(runs["long"].root), "--json"]).stdout)
    with httpx.Client(base_url=server.url, timeout=60.0) as client:
        answer = client.get(f"/api/runs/{runs['long'].id}/correlation").json()
    curves = answer.pop("curves")
    assert said["metrics"]
    assert answer.pop("missing") == []
    assert answer == said
    assert len(curves["times"]) == len(curves["step_s"]) == said["windows"]
    first, strongest = curves["metrics"][0], said["metrics"][0]
    assert (first["metric"], first["device"]) == (strongest["metric"], strongest["strongest"][0]["device"])
    assert len(first["values"]) == said["windows"]


def test_a_stretch_of_the_run_can_be_asked_for(runs, server):
    with httpx.Client(base_url=server.url, timeout=60.0) as client:
        address = f"/api/runs/{runs['long'].id}/correlation"
        whole = client.get(address).json()
        half = client.get(address, params={"start": (whole["start"] + whole["stop"]) / 2}).json()
        nothing = client.get(address, params={"stop": whole["start"] + 10}).json()
    assert half["windows"] < whole["windows"]
    assert half["stop"] == whole["stop"]
    assert "too short a time" in nothing["missing"][0]["why"]


@pytest.mark.usefixtures("real")
def test_the_page_ranks_metrics_and_draws_them_beside_the_steps(runs, server):
    with chromium() as browser:
        tab = WatchedPage(browser, server.url, viewport={"width": 1280, "height": 900})
        page = tab.open(f"#/run/{runs['long'].id}/correlation")
        rows = page.get_by_role("region", name="What moved with the time of a step").locator("tbody tr")
        strengths = [
            abs(float(row.replace("−", "-"))) for row in rows.locator("td:nth-child(3) .strong").all_inner_texts()
        ]
        assert strengths == sorted(strengths, reverse=True)
        expect(page.locator("[data-metric] canvas")).to_have_count(min(24, len(strengths)))
        tab.open(f"#/run/{runs['short'].id}/correlation")
        expect(page.locator("main")).to_contain_text("steps were logged for too short a time")
        tab.close()
    assert not tab.faults
