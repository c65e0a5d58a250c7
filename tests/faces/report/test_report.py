"""The report: everything in one file, escaped, and honest about what is missing."""

from __future__ import annotations

import json
import math
import re
import time
from html.parser import HTMLParser

import pytest

from cordee.core.draw.axes import extremes, nice_ticks, time_unit
from cordee.core.draw.charts import ChartLine, line_chart
from cordee.core.draw.clean import clean, one_line, ranges
from cordee.core.errors import RunFolderError
from cordee.core.findings import Finding
from cordee.faces.report import render
from cordee.faces.report.plots import quantile_line
from cordee.faces.report.text import failure_text
from cordee.faces.report.usage import read_usage
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.runs.logframes import LogWriter
from cordee.runs.state import replay
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events, encode_grid, encode_schema
from cordee.telemetry.store.phases import lost_time, phase_shares
from cordee.telemetry.store.reader import Run

NASTY = "<script>alert('x')</script> \x1b[31m"
FAILURE = {"kind": "rank", "rank": 1, "node": "local-0", "code": 1, "signal": None, "message": f"KeyError {NASTY}"}


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
    folder.plan.write_text('{"steps": []}')
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
        writer.append("attempt_ended", attempt=1, outcome="failed", reason=NASTY, progress=False, failure=FAILURE)
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
    assert page.references == ["data:,"]
    assert "script" not in page.tags
    assert "http" not in text.replace("http-equiv", "")
    assert "&lt;script&gt;" in text
    assert "Traceback" in text
    assert "KeyError" in text
    assert "\x1b" not in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert page.tags.count("svg") >= 3
    document = json.loads((folder.report / "report.json").read_text())
    assert document["schema"] == "cordee.report/1"
    assert document["metrics"]["loss"]["first"] == 3.0
    assert document["resources"]["rank"]["cpu_cores_ratio"]["devices"]["0"]["samples"] == 19
    assert "host.disk fail" in (folder.report / "report.txt").read_text()


def test_a_run_that_goes_on_and_one_that_never_began_can_be_rendered(folder):
    journal(folder, ended=False)
    text = render(folder.root).read_text()
    assert "still running" in text
    assert "nothing was sampled" in text
    empty = RunFolder.create(folder.root.parent, "e-20260101T000000Z-abcd")
    page_of(render(empty.root))


def test_what_failed_without_a_place_is_said_once_among_the_troubles(folder):
    writer = JournalWriter(folder.journal, "supervisor-1", 1)
    text = "1 of 5 tasks failed"
    writer.append("supervisor_started", pid=1, host="h", segment=1)
    writer.append("attempt_started", attempt=1, world_size=0, nodes=[])
    writer.append("finding", finding=Finding(text, "error", "farm-failed", next="look").document())
    failure = {"kind": "farm", "rank": None, "node": None, "code": None, "signal": None, "message": text}
    writer.append("attempt_ended", attempt=1, outcome="failed", reason=text, progress=False, failure=failure)
    writer.append("ended", state="failed", exit_code=1, reason="farm", text=text)
    page = render(folder.root).read_text()
    troubles = (folder.report / "report.txt").read_text().partition("Troubles\n")[2]
    assert troubles.startswith(f"  error: {text}\n    next: look\n  attempt 1 failed\n")
    assert troubles.count(text) == 1
    assert "node None" not in page + failure_text(failure)


def saturated(folder):
    """Let two ranks use a half of a core each, of one that falls to each."""
    writer = BlockLogWriter(folder.telemetry, 1)
    metrics = [{"name": name, "unit": "cores", "source": "proc"} for name in ("cpu_cores_ratio", "cpu_share_cores")]
    schema, record = encode_schema("local-0", "rank", 1.0, [0, 1], metrics)
    writer.append(record)
    now = time.time()
    for second in range(20):
        writer.append(encode_grid(schema, now + second, [0.5, 1.0] * 2))
    writer.close()


def test_the_score_stands_in_all_three_forms_and_says_of_what_it_is(folder):
    journal(folder)
    saturated(folder)
    page = page_of(render(folder.root))
    assert page.references == ["data:,"]
    text, html = (folder.report / "report.txt").read_text(), (folder.report / "index.html").read_text()
    found = json.loads((folder.report / "report.json").read_text())["saturation"]
    assert found["kind"] == "cpu"
    assert found["score"] == pytest.approx(100 * found["time"] * found["breadth"] * found["depth"])
    for shown in (text, html):
        assert "Saturation of the CPU cores" in " ".join(shown.split())
        assert f"{found['score']:.1f}" in shown
    assert all(len(line) <= 80 for line in text.splitlines())


def test_without_a_sample_there_is_no_score_and_no_picture_but_words(folder):
    journal(folder)
    page = page_of(render(folder.root))
    assert "<h2>Saturation" not in (folder.report / "index.html").read_text()
    assert json.loads((folder.report / "report.json").read_text())["saturation"] is None
    assert page.open == []
    only_nodes = BlockLogWriter(folder.telemetry, 1)
    schema, record = encode_schema("local-0", "node", 1.0, ["local-0"], [{"name": "load_1m", "unit": "", "source": ""}])
    only_nodes.append(record + encode_grid(schema, time.time(), [1.0]))
    only_nodes.close()
    render(folder.root)
    missing = json.loads((folder.report / "report.json").read_text())["missing"]
    assert any(text.startswith("saturation: there is nothing to score: there is not one sample") for text in missing)


def test_a_large_run_stays_small(folder):
    journal(folder, ranks=1000)
    telemetry(folder, ranks=1000)
    path = render(folder.root)
    assert path.stat().st_size < 2_000_000
    assert "more rows are in report.json" in path.read_text()


def test_gaps_stay_gaps_and_no_numbers_make_no_chart():
    chart = line_chart("x", [ChartLine("a", [0, 1, 2, 3], [1.0, math.nan, 2.0, 3.0])], x_label="s")
    assert chart.count("M") >= 2
    assert "nothing was measured" in line_chart("x", [ChartLine("a", [0.0], [math.nan])], x_label="s")


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.001, 0.0012), (-5, 17), (0, 1e12), (3, 3)])
def test_ticks_cover_the_range_and_are_few(low, high):
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert 2 <= len(ticks) <= 8


def test_no_line_of_the_text_is_wider_than_a_terminal_or_acts_on_it(folder):
    journal(folder)
    telemetry(folder)
    render(folder.root)
    text = (folder.report / "report.txt").read_text()
    assert max(map(len, text.splitlines())) <= 80
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "KeyError" in text


def test_arguments_that_are_no_text_and_a_damaged_plan_are_survived(folder):
    journal(folder)
    step = {"tasks": {"argv": ["python", "a\udcff.py"], "env": {"TOKEN": "very-secret"}}}
    folder.plan.write_text(json.dumps({"steps": [step], "cluster": "local", "backend": "local"}))
    page = render(folder.root).read_text()
    assert "TOKEN" in page
    for name in ("index.html", "report.json", "report.txt"):
        assert "very-secret" not in (folder.report / name).read_text()
    assert json.loads((folder.report / "report.json").read_text())["command"] == ["python", "a\udcff.py"]
    for damaged in ("[]", '{"steps": [3]}', '{"steps": {"a": 1}}', "{", ""):
        folder.plan.write_text(damaged)
        page_of(render(folder.root))


def test_a_torn_journal_and_torn_telemetry_are_rendered_as_far_as_they_go(folder):
    journal(folder)
    telemetry(folder)
    for path in (*folder.journal.glob("*.jsonl"), *folder.telemetry.glob("*.log")):
        path.write_bytes(path.read_bytes()[:-9])
    page_of(render(folder.root))


def test_what_cannot_be_read_or_written_is_an_error_with_advice(tmp_path, folder):
    with pytest.raises(RunFolderError, match="journal"):
        render(tmp_path / "nowhere")
    journal(folder)
    folder.report.rmdir()
    folder.report.write_text("a file in its place")
    with pytest.raises(RunFolderError, match="reports"):
        render(folder.root)


def test_a_run_that_fell_silent_is_said_to_be(folder):
    journal(folder, ended=False)
    path = next(folder.journal.glob("*.jsonl"))
    path.write_text(re.sub(r'"time":"[^"]*"', '"time":"2026-01-01T00:00:00.000Z"', path.read_text()))
    assert "nothing was heard from the run" in render(folder.root).read_text()


def test_a_long_run_is_read_in_bins_and_its_mean_and_peak_stay_exact(folder):
    journal(folder)
    telemetry(folder)
    run = Run(folder)
    whole, binned = read_usage(run, "rank", 20.0, 2), read_usage(run, "rank", 86400.0, 1000)
    assert len(binned.times) < len(whole.times)
    assert binned.samples.tolist() == whole.samples.tolist() == [[19, 19]]
    assert binned.mean.tolist() == [pytest.approx(row, rel=1e-5) for row in whole.mean.tolist()]
    assert whole.mean[0, 0] == pytest.approx(18.3 / 19)
    assert binned.most.tolist() == whole.most.tolist()
    assert whole.most[0, 0] == pytest.approx(1.9)


def test_fewer_points_keep_the_extremes_and_the_gaps():
    y = [math.nan if 300 <= at < 400 else math.sin(at) for at in range(5000)]
    y[777] = 99.0
    x, kept = extremes(list(map(float, range(5000))), y)
    assert len(kept) <= 500
    assert x[kept.index(99.0)] == 777
    assert any(math.isnan(value) for value in kept)
    chart = line_chart("spike", [ChartLine("a", list(map(float, range(5000))), y)], x_label="s")
    assert "<desc>" in chart
    assert "100" in chart


def test_many_devices_become_quantiles():
    import numpy as np

    values = np.tile(np.arange(100.0), (3, 1))
    values[1] = np.nan
    line = quantile_line("q", [0.0, 1.0, 2.0], values)
    assert line.y[0] == pytest.approx(49.5)
    assert math.isnan(line.y[1])
    assert (line.bands[0][0][0], line.bands[0][1][0]) == (0.0, 99.0)
    assert line.bands[1][0][0] == pytest.approx(9.9)


def test_infinities_are_no_part_of_quantiles():
    import numpy as np

    values = np.tile(np.arange(100.0), (2, 1))
    values[0, 99], values[1, :] = np.inf, np.inf
    line = quantile_line("q", [0.0, 1.0], values)
    assert line.y[0] == pytest.approx(49.0)
    assert line.bands[0][1][0] == 98.0
    assert math.isnan(line.y[1])


def test_what_programs_print_is_made_fit_to_be_shown():
    assert clean("a\x1b[2J\x00\udcff\u202eb\n\tc") == "a\ufffd[2J\ufffd\ufffd\ufffdb\n\tc"
    assert one_line("a\n  b " * 50, 10) == "a b a b..."
    assert ranges([3, 0, 1, 2, 8]) == "0-3, 8"
    assert time_unit(59) == (1.0, "s")
    assert time_unit(7200) == (60.0, "min")


def replayed(*events):
    """Return the state after (name, monotonic seconds, fields) of one supervisor."""
    base = {"epoch": 1, "writer": "s", "time": "2026-01-01T00:00:00.000Z"}
    return replay(
        [{**base, "seq": seq, "mono": mono, "event": name, **more} for seq, (name, mono, more) in enumerate(events)]
    )


NODES = [{"node": "n", "ranks": [0]}]
RESTARTED = (
    ("supervisor_started", 0.0, {"segment": 1}),
    ("attempt_started", 1.0, {"attempt": 1, "world_size": 1, "nodes": NODES}),
    ("rank_started", 1.0, {"attempt": 1, "rank": 0, "node": "n"}),
    ("attempt_ended", 6.0, {"attempt": 1, "outcome": "failed"}),
    ("attempt_started", 7.0, {"attempt": 2, "world_size": 1, "nodes": NODES, "resume_step": 10}),
    ("rank_started", 7.0, {"attempt": 2, "rank": 0, "node": "n"}),
    ("attempt_ended", 10.0, {"attempt": 2, "outcome": "finished"}),
    ("ended", 10.0, {"state": "finished", "exit_code": 0}),
)


def test_shares_of_phases_add_up():
    shares = {share.name: share for share in phase_shares(replayed(*RESTARTED))}
    assert shares["train"].seconds == pytest.approx(8.0)
    assert sum(share.share for share in shares.values()) == pytest.approx(1.0)


def test_a_restart_costs_the_time_between_and_the_steps_since_the_checkpoint():
    state = replayed(*RESTARTED)
    began = state.attempts[0]["started_at"]
    steps = {1: [(step, began + step / 3) for step in range(15)], 2: [(30, began + 9.0)]}
    lost = lost_time(state, steps)
    assert lost.between_s == pytest.approx(1.0)
    assert lost.repeated_steps == 4
    assert lost.repeated_s == pytest.approx(4 / 3)


def test_steps_that_a_script_did_not_repeat_because_it_continued_by_itself_are_not_lost():
    state = replayed(*RESTARTED)
    state.attempts[1]["resume_step"] = None
    began = state.attempts[0]["started_at"]
    first = [(step, began + step / 3) for step in range(15)]
    lost = lost_time(state, {1: first, 2: [(13, began + 7.0), (14, began + 8.0)]})
    assert (lost.repeated_steps, lost.repeated_s, lost.resumed_by_itself) == (2, pytest.approx(2 / 3), True)
    again = lost_time(state, {1: first, 2: [(0, began + 7.0), (14, began + 9.0)]})
    assert (again.repeated_steps, again.resumed_by_itself) == (15, False)


def test_what_a_restart_repeated_is_unknown_without_steps_and_nothing_without_a_restart():
    assert lost_time(replayed(*RESTARTED), {}).repeated_steps is None
    assert lost_time(replayed(*RESTARTED), {}).repeated_s is None
    once = lost_time(replayed(*RESTARTED[:4]), {1: [(3, 2.0)]})
    assert (once.between_s, once.repeated_s, once.repeated_steps) == (0.0, 0.0, 0)
