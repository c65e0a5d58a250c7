"""The report: everything in one file, escaped, and honest about what is missing."""

from __future__ import annotations

import json
import math
import time
from html.parser import HTMLParser

import pytest

from cordee.insight.phases import phase_shares, repeated_steps
from cordee.report import render
from cordee.report.charts import Line, line_chart, nice_ticks
from cordee.runs.blocklog import BlockLogWriter, encode_events, encode_grid, encode_schema
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.runs.logframes import LogWriter
from cordee.runs.state import replay

NASTY = "<script>alert('x')</script> \x1b[31m"


class Page(HTMLParser):
    """Collects tags and references of a page, and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "t-20260101T000000Z-abcd")


def journal(folder, *, ended=True, ranks=2):
    writer = JournalWriter(folder.journal, "supervisor-1", 1)
    writer.append("supervisor_started", pid=1, host="h", segment=1)
    writer.append("node_connected", node="local-0", incarnation=1, host="h", pid=2)
    result = {"check": "host.disk", "status": "fail", "evidence": NASTY}
    writer.append("node_verdict", node="local-1", verdict="bad", results=[result])
    writer.append(
        "attempt_started", attempt=1, world_size=ranks, nodes=[{"node": "local-0", "ranks": list(range(ranks))}]
    )
    for rank in range(ranks):
        writer.append("rank_started", attempt=1, rank=rank, node="local-0", pid=rank + 10)
    if ended:
        writer.append("rank_exited", attempt=1, rank=1, node="local-0", code=1, signal=None, message=NASTY)
        writer.append("attempt_ended", attempt=1, outcome="failed", reason=NASTY, progress=False)
        writer.append("ended", state="failed", exit_code=1, reason="retries", text=NASTY)


def telemetry(folder, ranks=2):
    writer = BlockLogWriter(folder.telemetry, 1)
    now = time.time()
    metrics = [{"name": "cpu_cores_ratio", "unit": "cores", "source": "proc"}]
    schema, record = encode_schema("local-0", "rank", 1.0, list(range(ranks)), metrics)
    writer.append(record)
    for second in range(20):
        writer.append(encode_grid(schema, now + second, [math.nan if second == 7 else second * 0.1] * ranks))
    events = [(offset * 64, now + offset, offset, {"loss": 3.0 / (offset + 1)}) for offset in range(30)]
    writer.append(encode_events("local-0", 0, 1, 0, events))
    writer.close()


def page_of(path) -> Page:
    page = Page()
    page.feed(path.read_text())
    assert page.open == []
    return page


def test_a_failed_run_shows_why_in_one_file_without_references(folder):
    journal(folder)
    telemetry(folder)
    log = LogWriter(folder.logs / "local-0-1.log")
    log.write(1, 1, 1, f"Traceback: {NASTY}\n\xff\xfe".encode("latin-1"), time.time())
    log.close()
    path = render(folder.root)
    page = page_of(path)
    text = path.read_text()
    assert page.references == []
    assert "script" not in page.tags
    assert "http" not in text.replace("http-equiv", "")
    assert "&lt;script&gt;" in text
    assert "Traceback" in text
    assert page.tags.count("svg") >= 3
    document = json.loads((folder.report / "report.json").read_text())
    assert document["schema"] == "cordee.report/1"
    assert document["metrics"]["loss"]["first"] == 3.0
    assert document["resources"]["rank"]["cpu_cores_ratio"]["devices"]["0"]["samples"] == 19
    assert "host.disk fail" in (folder.report / "report.txt").read_text()


def test_a_run_that_goes_on_and_one_that_never_began_can_be_rendered(folder):
    journal(folder, ended=False)
    text = render(folder.root).read_text()
    assert "still going on" in text
    assert "nothing was sampled" in text
    empty = RunFolder.create(folder.root.parent, "e-20260101T000000Z-abcd")
    page_of(render(empty.root))


def test_a_large_run_stays_small(folder):
    journal(folder, ranks=1000)
    telemetry(folder, ranks=1000)
    path = render(folder.root)
    assert path.stat().st_size < 2_000_000
    assert "more rows are in report.json" in path.read_text()


def test_gaps_stay_gaps_and_no_numbers_make_no_chart():
    chart = line_chart("x", [Line("a", [0, 1, 2, 3], [1.0, math.nan, 2.0, 3.0])], x_label="s")
    assert chart.count("M") >= 2
    assert "nothing was measured" in line_chart("x", [Line("a", [0.0], [math.nan])], x_label="s")


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.001, 0.0012), (-5, 17), (0, 1e12), (3, 3)])
def test_ticks_cover_the_range_and_are_few(low, high):
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert 2 <= len(ticks) <= 8


def test_shares_of_phases_add_up_and_repeated_steps_are_counted():
    def event(seq, name, mono, **more):
        base = {"epoch": 1, "seq": seq, "writer": "s", "time": "2026-01-01T00:00:00.000Z", "mono": mono, "event": name}
        return {**base, **more}

    nodes = [{"node": "n", "ranks": [0]}]
    state = replay(
        [
            event(0, "supervisor_started", 0.0, segment=1),
            event(1, "attempt_started", 1.0, attempt=1, world_size=1, nodes=nodes),
            event(2, "rank_started", 1.0, attempt=1, rank=0, node="n"),
            event(3, "attempt_ended", 6.0, attempt=1, outcome="failed"),
            event(4, "attempt_started", 7.0, attempt=2, world_size=1, nodes=nodes, resume_step=10),
            event(5, "rank_started", 7.0, attempt=2, rank=0, node="n"),
            event(6, "attempt_ended", 10.0, attempt=2, outcome="finished"),
            event(7, "ended", 10.0, state="finished", exit_code=0),
        ]
    )
    shares = {share.name: share for share in phase_shares(state)}
    assert shares["train"].seconds == pytest.approx(8.0)
    assert sum(share.share for share in shares.values()) == pytest.approx(1.0)
    assert repeated_steps(state, {1: 14, 2: 30}) == 4
