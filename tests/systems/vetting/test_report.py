"""The vetting in a report: every node and check is there, nothing is said by colour alone, and size is bounded."""

from __future__ import annotations

import re

import pytest

from cordee.faces.report import render
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.state import RunState, replay
from cordee.systems.vetting.report.heatmap import MOST_NODES, Cell, HeatRow, heatmap
from cordee.systems.vetting.report.vetted import document_of, pair_strip, vetting_view

NASTY = "<script>alert('x')</script> \x1b[31m"


def result(check: str, status: str = "pass", evidence: str = "fine", **more: object) -> dict:
    return {"check": check, "name": check, "status": status, "evidence": evidence, **more}


def state_of(results: dict[str, list[dict]], verdicts: dict[str, str] | None = None, **document: object) -> RunState:
    state = RunState()
    for name, found in results.items():
        node = state.node(name)
        node.results, node.verdict = found, (verdicts or {}).get(name, "healthy")
    if document:
        empty = {"reason": "", "exclude": [], "unavailable": [], "confused": [], "links": [], "pairs": []}
        state.vetting = {**empty, **document}
    return state


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "t-20260101T000000Z-abcd")


def written(folder, nodes: int, **document: object) -> str:
    folder.plan.write_text('{"steps": []}')
    writer = JournalWriter(folder.journal, "supervisor-1", 1)
    writer.append("supervisor_started", pid=1, host="h", segment=1)
    for index in range(1, nodes + 1):
        bad = index == 3
        found = [result("gpu.temperature", "fail" if bad else "pass", NASTY if bad else "cool"), result("host.memory")]
        writer.append("node_verdict", node=f"n{index}", verdict="bad" if bad else "healthy", results=found)
    empty = {"unavailable": [], "confused": [], "links": [], "pairs": []}
    summary = {"verdict": "exclude", "reason": "n3 is hot", "exclude": ["n3"], **empty, **document}
    writer.append("vetting_verdict", document=summary)
    return render(folder.root).read_text()


def test_a_page_shows_who_is_left_out_and_why(folder):
    page = written(
        folder,
        4,
        unavailable=[{"check": "gpu.xid", "reason": "closed", "nodes": ["n1", "n2"]}],
        confused=[{"check": "gpu.gemm", "nodes": ["n1"], "text": "no majority"}],
        links=[{"nodes": ["n1", "n2"], "text": "slow between n1 and n2"}],
        pairs=[{"round": 1, "nodes": ["n1", "n2"], "bytes_per_s": 1e9, "reason": None}],
    )
    assert "n3 is hot" in page
    assert "<title>n3 is left out</title>" in page
    assert "n3, gpu.temperature: fail: " in page
    assert "gpu.xid could not be tested on n[1-2]: closed" in page
    assert "Nobody is blamed: no majority" in page
    assert "Link: slow between n1 and n2" in page
    assert "n1 and n2, round 1: 1 GB/s" in page
    assert "<script>" not in page
    assert "\x1b" not in page
    text = (folder.report / "report.txt").read_text()
    assert "exclude: n3 is hot" in text
    assert "1 pair measured: slowest 1 GB/s" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_journal_gives_the_document_back(folder):
    written(folder, 4)
    document = document_of(replay(read_journal(folder.journal), folder.id))
    assert document is not None
    assert [node["verdict"] for node in document["nodes"]] == ["healthy", "healthy", "bad", "healthy"]
    assert document["exclude"] == ["n3"]


def test_a_run_without_vetting_has_no_such_section(folder):
    folder.plan.write_text('{"steps": []}')
    JournalWriter(folder.journal, "supervisor-1", 1).append("supervisor_started", pid=1, host="h", segment=1)
    assert "<h2>Vetting</h2>" not in render(folder.root).read_text()
    assert vetting_view(RunState()) is None


def test_nodes_that_only_judged_themselves_are_shown_too():
    view = vetting_view(state_of({"n1": [result("host.disk", "warn", "nearly full")]}, {"n1": "suspect"}))
    assert view is not None
    assert (view.verdict, view.against[0].evidence) == ("", "nearly full")


def test_old_and_broken_results_are_shown_as_unknown():
    view = vetting_view(state_of({"n1": [{"check": "host.disk", "status": "melted"}, {"status": "fail"}]}))
    assert view is not None
    assert [against.status for against in view.against] == ["fail", "unknown"]


@pytest.mark.parametrize("nodes", [1, 4, 40, 70])
def test_wide_columns_have_a_mark_for_everything_but_pass(nodes):
    cells = [Cell("pass"), Cell("fail"), Cell("warn"), Cell("unknown")]
    row = HeatRow("gpu.ecc", [cells[index % 4] for index in range(nodes)])
    picture = heatmap("h", [f"n{index}" for index in range(nodes)], [row])
    marks = re.findall(r'class="in"[^>]*>(.)<', picture)
    assert sorted(set(marks)) == sorted({"×", "!", "?"} if nodes > 1 else set())
    assert len(marks) == sum(cell.status != "pass" for cell in row.cells if cell)


def test_narrow_columns_say_it_by_height():
    names = [f"n{index}" for index in range(400)]
    statuses = ["fail" if index == 7 else "warn" if index == 300 else "pass" for index in range(400)]
    picture = heatmap("h", names, [HeatRow("gpu.ecc", [Cell(status) for status in statuses])])
    found = dict(re.findall(r'class="s-(\w+)"[^>]* height="([\d.]+)"', picture))
    heights = {status: float(height) for status, height in found.items()}
    assert heights["fail"] > heights["warn"] > heights["pass"]
    assert "<title>n7, gpu.ecc: fail</title>" in picture
    assert "n[8-299], gpu.ecc: pass" in picture


def test_a_page_of_many_nodes_stays_small_and_keeps_every_node_that_deviates():
    bad = {f"n{index}" for index in range(0, 4096, 100)}
    checks = [f"check.{number}" for number in range(20)]
    results = {
        f"n{index}": [result(check, "fail" if f"n{index}" in bad else "pass") for check in checks]
        for index in range(4096)
    }
    view = vetting_view(state_of(results, dict.fromkeys(bad, "bad"), verdict="exclude", exclude=sorted(bad)))
    assert view is not None
    assert view.hidden == 4096 - MOST_NODES
    assert view.heat.count(" is left out</title>") == len(bad)
    assert len(view.heat) < 300_000


def test_a_slow_pair_is_a_cross_not_only_another_colour():
    pairs = [
        {"round": 1, "nodes": ["a", "b"], "bytes_per_s": 9e9},
        {"round": 1, "nodes": ["c", "d"], "bytes_per_s": 2e9},
    ]
    strip = pair_strip([*pairs, {"round": 2, "nodes": ["a", "c"], "bytes_per_s": None}], list("abcd"), 8e9)
    assert (strip.count('class="dot"'), strip.count('class="slow"')) == (2, 2)
    assert "slow below 8 GB/s" in strip
    assert pair_strip([], ["a"], None) == ""
