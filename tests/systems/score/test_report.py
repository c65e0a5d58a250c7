"""Pages of a scoring: one file each, escaped, honest about what is missing, small whatever the job's size."""

from __future__ import annotations

import json
import resource
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

from cordee.core.draw.images import LEVELS, MISSING, encode_png, to_levels
from cordee.core.errors import RunFolderError
from cordee.core.findings import Finding
from cordee.systems.score.report import figures, render, words
from cordee.systems.score.report.classes import course, per_device
from cordee.systems.score.report.collect import collect
from cordee.systems.score.report.reduce import MOST_BINS, MOST_ROWS, layout, reduce_values
from cordee.systems.score.report.summary import comparison_lines, summary_document, summary_html, summary_lines
from cordee.systems.score.result import CLASSES, Diagnosis, ScoreShares, ScoreWindows
from cordee.systems.score.score import score
from support.recordings.synthetic_traces import PLAN, START, Synthetic

NASTY = "<script>alert('x')</script> \x1b[31m\u202e\u4e2d"
EMPTY = ("meta", "br", "link", "img", "image", "rect", "path", "line", "i")


class Page(HTMLParser):
    """Checks that tags are closed in order; collects ids, references and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.references += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def scored(job, plan=PLAN):
    """Return a scoring with windows of 10 s whose classes are those of the plan, and its trace."""
    trace = job.trace()
    result = score(trace)
    count = len(trace.times) // 10
    ends = np.cumsum([share for _, share in plan])
    what = np.searchsorted(ends, (np.arange(count) + 0.5) / count).clip(0, len(plan) - 1)
    numbers = np.array([CLASSES.index(name) for name, _ in plan], np.int8)[what]
    classes = np.repeat(numbers[:, None], len(trace.devices), axis=1)
    classes[:, list(job.silent)] = -1
    result.windows = ScoreWindows(trace.times[0] + np.arange(count) * 10.0, 10.0, classes, {})
    result.diagnosis = [
        Diagnosis("input", 0.25, "The GPUs wait for input", (f"{NASTY} graphics 0.3",), ("more workers",), 1.2)
    ]
    result.flags = [Finding(f"one slow rank {NASTY}", "warn", next="vet its node")]
    result.confidence, result.confidence_reasons = 0.8, ["caps are fallbacks"]
    return result, trace


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    job = Synthetic(name=f"job {NASTY}", seconds=120, silent=(5,), absent={"gpu_fp64_ratio": f"id 11 unknown {NASTY}"})
    result, trace = scored(job)
    render([result], [trace], folder)
    return folder / "report"


def test_the_page_is_well_formed_and_needs_no_other_host(page):
    html = (page / "score.html").read_text()
    parsed = Page(html)
    assert {"script", "iframe", "object"}.isdisjoint(parsed.tags)
    assert all(reference.startswith(("data:", "#")) for reference in parsed.references)
    anchors = {reference[1:] for reference in parsed.references if reference.startswith("#")}
    assert anchors <= set(parsed.ids)
    assert "default-src 'none'" in html
    assert "prefers-color-scheme: dark" in html
    assert "@page { size: A4" in html


def test_what_programs_wrote_is_escaped(page):
    html = (page / "score.html").read_text()
    assert "<script>alert" not in html
    assert "&lt;script&gt;" in html
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_the_page_says_score_diagnosis_caps_and_what_is_missing(page):
    text = Page((page / "score.html").read_text()).text
    for words_ in (
        "The GPUs wait for input", "more workers", "one slow rank", "id 11 unknown", "caps are fallbacks",
        "What it is not", "Where the caps come from", "nothing was measured.", "of the measured time",
    ):  # fmt: skip
        assert words_ in text, words_


def test_a_metric_that_nobody_measured_is_listed_and_not_drawn(page):
    html = (page / "score.html").read_text()
    assert "gpu_fp64_ratio" in html
    assert 'aria-label="fp64"' not in html
    assert 'aria-label="fp32"' in html


def test_json_and_text_stand_beside_the_page(page):
    document = json.loads((page / "score.json").read_text())
    assert document["schema"] == "cordee.score/1"
    assert abs(document["score"] - 100 * document["time"] * document["breadth"] * document["depth"]) < 1e-6
    text = (page / "score.txt").read_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "not speed" in text


def test_several_jobs_stand_side_by_side(tmp_path):
    before = scored(Synthetic(name="before", seconds=200, per_node=2))
    after = scored(Synthetic(name="after", seconds=200, per_node=2, plan=(("compute", 1.0),)), (("compute", 1.0),))
    path = render([before[0], after[0]], [before[1], after[1]], tmp_path)
    text = Page(path.read_text()).text
    assert "before → after" in text
    assert "input: 25% → 0% of the time" in text
    documents = json.loads((tmp_path / "report/score.json").read_text())["scores"]
    assert [document["job"]["name"] for document in documents] == ["before", "after"]
    assert any("Score" in line for line in comparison_lines([before[0], after[0]]))


def test_without_a_sample_there_are_words_and_no_plots(tmp_path):
    result, trace = scored(Synthetic(seconds=20, per_node=1, nodes=1))
    result.shares = ScoreShares(None, None, None, None, 0.0, 0.0)
    result.windows = ScoreWindows(np.zeros(0), 10.0, np.zeros((0, 1), np.int8), {})
    result.confidence_reasons = ["nothing was measured"]
    result.diagnosis, result.flags, result.devices, result.nodes, result.ranks = [], [], [], [], []
    trace.load = lambda name: None
    trace.node = trace.rank = None
    trace.missing["gpu_sm_ratio"] = result.missing["gpu_sm_ratio"] = "no permission to read counters"
    html = render([result], [trace], tmp_path).read_text()
    assert "No score: nothing was measured" in html
    assert "no permission to read counters" in html
    assert "<svg" not in html
    assert "No score: nothing was measured" in (tmp_path / "report/score.txt").read_text()
    assert "no permission" in (tmp_path / "report/score.txt").read_text()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "report").write_text("in the way")
    result, trace = scored(Synthetic(seconds=20, per_node=1, nodes=1))
    with pytest.raises(RunFolderError, match="folder of reports"):
        render([result], [trace], tmp_path)


def test_where_the_points_went_adds_up_to_a_hundred():
    shares = ScoreShares(21.0, 0.7, 0.6, 0.5, 1.0, 10.0)
    parts = dict(figures.losses(shares))
    assert sum(parts.values()) == pytest.approx(100)
    assert parts["score"] == pytest.approx(21)
    assert parts["time"] == pytest.approx(30)


def test_memory_that_few_units_fill_costs_no_depth():
    parts = dict(figures.losses(ScoreShares(40.0, 1.0, 0.2, 2.0, 1.0, 10.0)))
    assert parts == {"score": pytest.approx(40), "depth": 0, "breadth": pytest.approx(60), "time": pytest.approx(0)}


def test_a_gap_of_one_device_is_no_dip_of_the_sum():
    values = np.full((100, 4), 600, np.float32)
    values[40:50, 1] = np.nan
    values[80:, 2] = np.nan  # this one had ended
    values[60:62] = np.nan
    plan = layout([("n", at, str(at)) for at in range(4)], START + np.arange(100.0), 1.0)
    total = reduce_values("gpu_power_watts", "watts", values, plan).total
    assert len(plan.bins) == 100
    assert np.isnan(total[60:62]).all()
    assert (total[:60] == 2400).all()
    assert (total[62:80] == 2400).all()
    assert (total[80:] == 1800).all()


def test_reductions_agree_with_the_samples():
    values = np.random.default_rng(1).random((2000, 7)).astype(np.float32)
    values[:, 3] = np.nan
    values[100:200] = np.nan
    keys = [(f"n{10 - at}", 0, str(at)) for at in range(7)]
    plan = layout(keys, START + np.arange(2000.0), 1.0)
    assert plan.nodes == ["n4", "n5", "n6", "n7", "n8", "n9", "n10"]
    small = reduce_values("x", "ratio", values, plan)
    assert small.cells.shape == (7, len(plan.bins))
    assert len(plan.bins) <= MOST_BINS
    np.testing.assert_allclose(small.means[[0, 6]], np.nanmean(values[:, [0, 6]], axis=0), rtol=1e-5)
    np.testing.assert_allclose(small.most[0], np.nanmax(values[:, 0]))
    assert np.isnan(small.means[3])
    assert np.isnan(small.most[3])
    assert np.isnan(small.cells[3]).all()  # its row in the order of nodes
    per_bin = np.delete(values[: plan.per_bin], 3, axis=1).mean(axis=0)
    np.testing.assert_allclose(small.bands[:, 0], np.quantile(per_bin, (0, 0.1, 0.5, 0.9, 1)), rtol=1e-5)
    gap = 150 // plan.per_bin
    assert np.isnan(small.bands[:, gap]).all()
    assert np.isnan(small.total[gap])


@pytest.mark.parametrize(("nodes", "size", "per_row"), [(125, 4, 1), (250, 4, 2), (2500, 4, 20), (300, 3, 3)])
def test_rows_hold_whole_nodes_where_it_can_be(nodes, size, per_row):
    keys = [(f"n{node}", at, "") for node in range(nodes) for at in range(size)]
    plan = layout(keys, START + np.arange(10.0), 1.0)
    assert plan.per_row == per_row
    assert len(plan.rows) <= MOST_ROWS


def test_missing_is_never_the_colour_of_zero():
    levels = to_levels(np.array([[0.0, np.nan, 1.0, 7.0, -1.0]]), 0, 1)
    assert levels.tolist() == [[1, MISSING, LEVELS, LEVELS, 1]]


def test_pictures_are_png_that_others_read():
    png = encode_png(np.arange(6, dtype=np.uint8).reshape(2, 3), [(at, at, at) for at in range(6)], transparent=0)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert zlib.decompress(png[png.index(b"IDAT") + 4 : -16]) == b"\x00\x00\x01\x02\x00\x03\x04\x05"
    assert b"tRNS" in png


def test_a_silent_device_does_not_make_the_others_assumed():
    result, _ = scored(Synthetic(seconds=60, silent=(5,)))
    assert result.assumed == ()
    assert "upper bound" not in words.headline(result)


def test_classes_over_time_add_up_and_unknown_stays_unknown():
    result, trace = scored(Synthetic(seconds=100, silent=(0,)))
    found = course(result)
    np.testing.assert_allclose(sum(found.shares.values()), 1.0)
    np.testing.assert_allclose(found.shares["unknown"], 1 / 8)
    plan = layout([(device.node, device.index, "") for device in trace.devices], trace.times, 1.0)
    rows = per_device(result.windows, plan, 720)
    assert (rows[0] == 0).all()
    assert rows[1, 0] == CLASSES.index("input") + 1


def test_fragments_for_a_run_report_say_the_score():
    result, _ = scored(Synthetic(seconds=60))
    fragment = summary_html(result)
    Page(fragment)
    assert f"{result.shares.score:.1f} = 100" in fragment
    assert "<script>" not in fragment
    lines = summary_lines(result)
    assert max(map(len, lines)) <= 80
    assert any("GPUs wait for input" in line for line in lines)
    assert summary_document(result)["score"] == result.shares.score
    json.dumps(summary_document(result), allow_nan=False)


def test_tables_put_the_worst_first_and_count_the_rest():
    result, trace = scored(Synthetic(seconds=60, nodes=10, slow={17: 0.2}, silent=(5,)))
    table = next(table for table in words.tables(collect(result, trace), most=4) if table.title == "GPUs")
    assert table.rows[0][0].startswith("node0001 GPU 1")
    assert table.rows[0][1] == words.NOT_MEASURED
    assert table.rows[1][0].startswith("node0004 GPU 1")
    assert table.rest.startswith("and 36 more, mean score")


def test_a_thousand_devices_make_a_small_page_in_little_memory(tmp_path):
    job = Synthetic(
        nodes=250, seconds=240, metrics=("gpu_graphics_ratio", "gpu_sm_ratio", "gpu_tensor_ratio", "gpu_dram_ratio")
    )
    result, trace = scored(job)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = render([result], [trace], tmp_path)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert path.stat().st_size < 4_000_000
    assert grown_kb < 150_000
    assert "A row is the mean of 2 neighbours" in path.read_text()
