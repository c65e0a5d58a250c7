"""What people are told of a run whose ranks are in its trials: `cordee show`, the report, the overview of its page."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from cordee.faces.cli.show import describe
from cordee.faces.report.data import collect
from support.runs.real_run import LocalRun
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns

SCRIPT = "import sys, cordee\ncordee.log(step=0, loss=(float(sys.argv[1]) - 2.5) ** 2)\n"


@pytest.mark.usefixtures("real")
def test_trials_are_told_in_the_place_of_what_ranks_log(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    (job / "cordee.toml").write_text(
        'name = "sweep"\nrun = "python train.py {x}"\n[sweep]\nx = [10.5, 2.0, 30.5]\ngoal = "min loss"\n'
    )
    with LocalRun(job, tmp_path / "runs", reported=False, vet__max_load=1000.0) as run:
        state = run.wait_end()
        told = describe(run.folder, state)
        begin = told.index("trials")
        assert told[begin + 1 : begin + 3] == ["  3 of 3 done, 0 failed", "  best: loss = 0.25, trial 1: x=2.0"]
        assert [line.split() for line in told[begin + 3 : begin + 6]] == [
            ["1", "0.25", "x=2.0"], ["0", "64", "x=10.5"], ["2", "784", "x=30.5"],
        ]  # fmt: skip
        assert not any("cordee.log" in text for text in collect(run.folder).missing)
        with ServedRuns(tmp_path / "runs") as server, chromium() as browser:
            document = httpx.get(f"{server.url}/api/runs/{run.folder.id}", timeout=60).json()
            assert "loss and throughput" not in [one["what"] for one in document["missing"]]
            tab = WatchedPage(browser, server.url, viewport={"width": 1000, "height": 1400})
            page = tab.open(f"#/run/{run.folder.id}")
            rows = page.get_by_role("region", name="Tasks").get_by_role("row")
            expect(rows.nth(1)).to_contain_text("0.25")
            expect(page.locator("main")).not_to_contain_text("logged nothing")
            page.get_by_role("region", name="Tasks").get_by_role("button", name="x").click()
            expect(rows.nth(1)).to_contain_text("30.5")
            tab.close()
            assert not tab.faults
