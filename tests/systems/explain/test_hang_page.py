"""The page "Hangs": what the server answers, and what stands on it in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from cordee.runs.folder import RunFolder
from cordee.systems.explain.hang_report import hang_findings
from support.made.runs import MadeRun, write_run
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns

from .made_hang import MadeHang, stack

MARKUP = "<img src=x onerror=alert(1)>"


def tell(folder: RunFolder, number: int) -> None:
    """Write the causes of a hang into the journal, as the supervisor does."""
    (journal,) = folder.journal.glob("supervisor-*.jsonl")
    last: dict[str, Any] = json.loads(journal.read_text().splitlines()[-1])
    with journal.open("a") as file:
        for at, finding in enumerate(hang_findings(folder.root, number), 1):
            event = {**last, "seq": last["seq"] + at, "event": "finding", "finding": finding.document()}
            file.write(json.dumps(event) + "\n")


def hanging(runs: Path, **named: Any) -> tuple[RunFolder, MadeHang]:
    """A run of eight ranks in which rank 3 waits for a FIFO, of rank 5 nothing was heard, and a question was asked later."""
    folder = write_run(runs, MadeRun(8, 20, **named), seal=False)
    hang = MadeHang(folder.root)
    frames = [
        ("/home/me/tokens.py", 26, MARKUP),
        ("/home/me/train.py", 88, "step"),
        ("/home/me/train.py", 90, "<module>"),
    ]
    hang.rank(3, stack(*frames), enqueued=16, wchan="pipe_read", open="FIFO /scratch/feed", step=12)
    hang.gone(5)
    hang.on_node("node-1", full=["/scratch"], hanging=["/home"], kernel_log=["nfs: server not responding"])
    tell(folder, 1)
    return folder, hang


@pytest.fixture
def runs(tmp_path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def browse(real, runs) -> Iterator[Any]:
    """Opens pages over the runs; whatever no page may do fails the test."""
    with ServedRuns(runs) as server, chromium() as browser:
        tab = WatchedPage(browser, server.url, viewport={"width": 1280, "height": 900})
        yield tab
        tab.close()
        assert not tab.faults


def test_the_page_names_who_what_where_and_next_and_shows_who_stood_where(runs, browse):
    folder, _ = hanging(runs)
    page = browse.open(f"#/run/{folder.id}/hangs")
    cause = page.locator("main .note.bad")
    expect(cause).to_contain_text("it waits for FIFO /scratch/feed")
    for words in ("hang-input", "node-1", "/home/me/tokens.py:26", "look at who should write there"):
        expect(cause).to_contain_text(words)
    expect(cause.locator("a", has_text="3")).to_have_attribute("href", f"#/run/{folder.id}/rank/3")
    tree = page.locator(".tree")
    expect(tree.locator("summary")).to_have_count(3)
    expect(tree.locator("summary").first).to_contain_text("7 ranks")
    expect(tree).to_contain_text(f"{MARKUP} home/me/tokens.py:26")
    expect(page.locator("main")).to_contain_text("No stack of rank 5")
    rows = page.get_by_role("region", name="What the processes did").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("pipe_read")
    expect(page.get_by_role("region", name="Collectives that do not end").locator("tbody tr")).to_contain_text(
        "1 rank: 3"
    )
    expect(page.locator("main")).to_contain_text("does not answer: /home")


def test_the_tree_folds_and_shows_calls_of_libraries_when_asked(runs, browse):
    folder, hang = hanging(runs)
    frames = [("/x/lib/python3.11/site-packages/torch/a.py", at, f"inner_{at}") for at in range(3)]
    hang.rank(6, stack(*frames, ("/home/me/train.py", 91, "save")))
    page = browse.open(f"#/run/{folder.id}/hangs")
    tree = page.locator(".tree")
    expect(tree).to_contain_text("inner_0")
    expect(tree).not_to_contain_text("inner_1")
    expect(tree).to_contain_text("2 calls within libraries not shown")
    page.get_by_label("calls within libraries").check()
    expect(tree).to_contain_text("inner_1 torch/a.py:1")
    page.get_by_role("button", name="Fold all", exact=True).click()
    expect(tree).not_to_contain_text("tokens.py")
    page.get_by_role("button", name="Unfold all").click()
    expect(tree).to_contain_text("tokens.py")
    tree.locator("summary").first.click()
    expect(tree).not_to_contain_text("tokens.py")


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_only_runs_that_have_hangs_have_the_tab_and_their_findings_lead_to_it(runs, browse):
    folder, _ = hanging(runs)
    calm = write_run(runs, MadeRun(4, 20, name="calm"), seal=False)
    page = browse.open(f"#/run/{calm.id}")
    expect(page.locator("[data-tab]", has_text="Topology")).to_have_count(1)
    expect(page.locator("[data-tab]", has_text="Hangs")).to_have_count(0)
    browse.open(f"#/run/{calm.id}/hangs")
    expect(page.locator("main")).to_contain_text("No hang was seen in this run")
    browse.open(f"#/run/{folder.id}/findings")
    page.locator("li", has_text="FIFO /scratch/feed").get_by_role("link", name="show").click()
    expect(page.locator("[data-tab][aria-current]")).to_have_text("Hangs")
    expect(page.locator(".tree")).to_be_visible()


def test_of_several_the_newest_is_shown_and_each_can_be(runs, browse):
    folder, _ = hanging(runs)
    second = folder.root / "hangs" / "2"
    second.mkdir()
    told = json.loads((folder.root / "hangs" / "1" / "hang.json").read_text())
    (second / "hang.json").write_text(json.dumps({**told, "number": 2, "asked": True}))
    page = browse.open(f"#/run/{folder.id}/hangs")
    expect(page.locator("h2").first).to_have_text("Question 2")
    expect(page.locator("main")).to_contain_text("No stack was collected")
    page.get_by_role("button", name="Show where the ranks stood in Hang 1").click()
    expect(page.locator(".tree summary").first).to_contain_text("7 ranks")


def test_the_answer_does_not_grow_with_ranks(runs):
    folder = write_run(runs, MadeRun(4, 20), seal=False)
    hang = MadeHang(folder.root, 600)
    for rank in range(600):
        frame = ("/home/me/train.py", 1000 + rank, "step")
        groups = [{"name": f"t{rank // 2}", "size": 2, "enqueued": 7 - rank % 2, "completed": 6 - rank % 2}]
        hang.rank(rank, stack(frame), wchan=f"wait_{rank}", groups=groups)
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url, timeout=60.0) as client:
        found = client.get(f"/api/runs/{folder.id}/hangs/1").json()
        missing = client.get(f"/api/runs/{folder.id}/hangs/7")
    assert (len(found["alike"]), found["alike_total"]) == (100, 600)
    assert (len(found["collectives"]), found["collectives_total"]) == (100, 300)
    assert len(found["tree"]["below"]) == found["tree"]["count"] == 600
    assert found["collectives"][0]["late"] == "1"
    assert missing.status_code == 400
    assert missing.json()["error"]["allowed"] == [1]


def test_what_is_collected_later_is_seen_by_a_server_that_has_answered_before(runs):
    folder = write_run(runs, MadeRun(4, 20), seal=False)
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url, timeout=60.0) as client:
        assert client.get(f"/api/runs/{folder.id}").json()["folders"] == []
        assert client.get(f"/api/runs/{folder.id}/hangs").json() == {"hangs": [], "total": 0}
        MadeHang(folder.root, asked=True)
        deadline = client.get(f"/api/runs/{folder.id}/hangs").json()
        while not deadline["hangs"]:
            deadline = client.get(f"/api/runs/{folder.id}/hangs").json()
        assert client.get(f"/api/runs/{folder.id}").json()["folders"] == ["hangs"]
    assert (deadline["hangs"][0]["asked"], deadline["hangs"][0]["standing"]) == (True, 8)
