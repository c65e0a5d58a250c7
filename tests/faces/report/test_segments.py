"""The segments of a run in words, and in every face that shows them."""

from __future__ import annotations

import json
import re

import pytest

from cordee.faces.report import render
from cordee.faces.report.segments import end_words, segment_words, worth_showing
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.state import SegmentState, replay
from cordee.telemetry.store.phases import segment_times


@pytest.fixture
def chain(tmp_path):
    """A run on Slurm whose second segment waits."""
    folder = RunFolder.create(tmp_path, "t-20260101T000000Z-abcd")
    folder.plan.write_text('{"steps": [], "backend": "slurm"}')
    client = JournalWriter(folder.journal, "client", 0)
    client.append("submitted", nodes=2)
    client.append("placed", job="12")
    writer = JournalWriter(folder.journal, "supervisor-1", 1)
    writer.append("supervisor_started", epoch=1, segment=1, job="12", requeues=0, partition="debug")
    for node in ("n10", "n9"):
        writer.append("node_connected", node=node, incarnation=1, host="h", pid=2)
    writer.append("attempt_started", attempt=1, world_size=1, nodes=[{"node": "n9", "ranks": [0]}])
    writer.append("rank_started", attempt=1, rank=0, node="n9", pid=10)
    writer.append("attempt_ended", attempt=1, outcome="segment", reason="the time limit is near", progress=True)
    ended = {"segment": 1, "reason": "time_limit", "checkpoint": "step-5", "progress": True, "next": "requeue"}
    writer.append("segment_ended", **ended)
    return folder


def test_a_segment_is_said_with_its_place_its_times_and_its_end(chain):
    state = replay(read_journal(chain.journal), chain.id)
    first, second = (segment_words(times) for times in segment_times(state))
    assert (first.job, first.nodes) == ("job 12 in debug", "n[9-10]")
    assert first.ended == "its time limit was near; step-5 saved; the same job was queued again"
    assert re.match(r"waited 0.\d s, ran 0.\d s, 0.\d s of it training, job 12 in debug on n\[9-10\]", first.course)
    assert (second.held, second.ended) == ("", "waits for its nodes")


def test_the_report_shows_segments_and_no_trouble_where_there_was_none(chain):
    page = render(chain.root).read_text()
    text = (chain.report / "report.txt").read_text()
    document = json.loads((chain.report / "report.json").read_text())
    assert "Segments\n  1  waited" in text
    assert "waits for its nodes" in text
    assert "attempt 1" not in text
    assert "<h2>Segments</h2>" in page
    assert "attempt ended with its segment" in page
    first = document["segment_list"][0]
    assert (first["number"], first["job"], first["partition"], first["reason"]) == (1, "12", "debug", "time_limit")
    assert document["lost"]["between_segments_s"] >= 0
    assert all(len(line) <= 80 for line in text.splitlines())


def test_one_segment_without_a_scheduler_is_no_table(tmp_path):
    folder = RunFolder.create(tmp_path, "t-20260101T000000Z-abcd")
    folder.plan.write_text('{"steps": []}')
    JournalWriter(folder.journal, "supervisor-1", 1).append("supervisor_started", epoch=1, pid=1, host="h", segment=1)
    assert not worth_showing(replay(read_journal(folder.journal), folder.id))
    render(folder.root)
    assert "Segments" not in (folder.report / "report.txt").read_text()


@pytest.mark.parametrize(
    ("segment", "said"),
    [
        (SegmentState(1, ended_at=1.0, reason="crash_loop"), "the run failed (crash loop)"),
        (SegmentState(1, ended_at=1.0, reason="finished"), "the run finished"),
        (
            SegmentState(1, ended_at=1.0, reason="lost", next="scheduler"),
            "it was lost without a word; nothing new saved",
        ),
        (SegmentState(1, started_at=1.0), "continues"),
    ],
)
def test_an_end_is_said_in_plain_words(segment, said):
    assert end_words(segment).startswith(said)
