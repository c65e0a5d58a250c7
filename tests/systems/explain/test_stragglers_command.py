"""Stragglers in `cordee stragglers`, and what a run's document and report say of them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.faces.cli import cordee as main
from cordee.faces.report.run_document import run_document
from cordee.runs.folder import write_atomically
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.state import replay
from cordee.systems.explain.node.slow.causes import SlowCause
from cordee.systems.explain.node.slow.detector import SlowRanks
from cordee.systems.explain.node.slow.watch import STANDING
from cordee.systems.explain.node.slow.words import SlowContext, slow_finding
from support.made.runs import MadeRun, write_run

HEAT = {"rule": "hardware-throttled", "text": "GPU-1: heat held its clocks down"}
SLOW = {
    "rank": 5,
    "node": "n1",
    "since": 1_795_449_491,
    "share": 0.1,
    "peers_share": 0.25,
    "slower": 0.2,
    "cause": "host",
    "how": "throttled",
    "why": "its control group has used up its share of processors",
    "proof": [HEAT],
}
STANDS = {
    "schema": "cordee.stragglers/1",
    "on": True,
    "action": "report",
    "attempt": 1,
    "ranks": 8,
    "heard": 8,
    "slow": [SLOW],
    "spikes": {"3": 4, "1": 2},
    "at": 1_795_449_600.0,
}


@pytest.fixture
def folder(tmp_path):
    run = write_run(tmp_path / "runs", MadeRun(gpus=8, seconds=20))
    run.control.mkdir(exist_ok=True)
    run.writer = JournalWriter(run.journal, "test", 9)
    return run


def stands(folder, **more):
    write_atomically(folder.control / STANDING, json.dumps({**STANDS, **more}))


def told(folder, *events):
    for event, fields in events:
        folder.writer.append(event, **fields)
    assert folder.writer.flush()


def shown(folder, *words):
    done = CliRunner().invoke(main, ["stragglers", str(folder.root), *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_table_says_who_by_how_much_since_when_and_why(folder):
    stands(folder)
    lines = shown(folder).splitlines()
    assert lines[0].startswith("attempt 1: 8 of 8 ranks tell what they do with their time; 1 slow at ")
    assert lines[1].split() == ["rank", "node", "slower", "by", "waits", "peers", "wait", "since", "why"]
    assert lines[2].split()[:6] == ["5", "n1", "20", "%", "10", "%"]
    assert "2026-11-23T" in lines[2]
    assert lines[2].endswith("its control group has used up its share of processors")
    assert "known of a node: GPU-1: heat held its clocks down" in lines
    assert "short spikes, counted and not told: 6, most of rank 3 (4), rank 1 (2)" in lines


def test_findings_are_in_the_command_the_run_s_document_and_what_to_do_with_them(folder):
    cause = SlowCause("host", "throttled", {"compute": 0.1}, 0.0)
    slow = SlowRanks("n1", (5,), False, 0.0, 0.1, 0.25, 0.2, cause, False)
    finding = slow_finding(slow, SlowContext(1, 1_795_449_491, [HEAT]))
    told(folder, ("finding", {"finding": finding.document()}))
    stands(folder, slow=[])
    text = shown(folder)
    assert "no straggler" in text
    assert "told in this run: 1 times; the newest: rank 5 on n1 is slow, by 20 %" in text
    assert "next: ask for more cores" in text
    document = json.loads(shown(folder, "--json"))
    assert document["schema"] == "cordee.stragglers/1"
    (one,) = document["findings"]
    assert (one["rule"], one["ranks"], one["nodes"]) == ("straggler-rank", [5], ["n1"])
    whole = run_document(folder, replay(read_journal(folder.journal), folder.id))
    assert [found["ranks"] for found in whole["findings"] if found["rule"] == "straggler-rank"] == [[5]]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"on": False}, "nobody looks for stragglers"),
        ({"heard": 0, "slow": []}, "none is judged"),
        ({"slow": []}, "no straggler"),
        ({"schema": "cordee.stragglers/9"}, "nothing is known of stragglers"),
    ],
)
def test_what_is_not_known_is_said(folder, more, said):
    stands(folder, **more)
    assert said in shown(folder)


def test_a_run_that_nobody_looked_at_and_a_file_that_is_torn_say_nothing(folder):
    assert "nothing is known of stragglers" in shown(folder)
    (folder.control / STANDING).write_text('{"schema": "cordee.str')
    assert "nothing is known of stragglers" in shown(folder)
    assert json.loads(shown(folder, "--json"))["slow"] == []


def test_the_next_restart_is_shown_before_it_happens(folder):
    stands(folder)
    assert "the next restart changes no node" in shown(folder, "--dry-run")
    assert 'with "replace" others would take the place of n1' in shown(folder, "--dry-run")
    stands(folder, action="replace")
    assert "none is suspected" in shown(folder, "--dry-run")
    node = replay(read_journal(folder.journal), folder.id).nodes[0].node
    told(
        folder,
        ("node_verdict", {"node": "spare-1", "verdict": "healthy", "results": []}),
        ("nodes_chosen", {"nodes": [node], "spares": ["spare-1"], "excluded": []}),
        ("node_suspected", {"node": node, "reason": "rank 0 is 20 % slower than peers"}),
    )
    text = shown(folder, "--dry-run")
    assert f"at the next restart {node} is vetted again, and spare-1 takes its place (rank 0 is 20 % slower" in text
    assert json.loads(shown(folder, "--json"))["replacements"][0]["by"] == "spare-1"
    told(folder, ("node_suspected", {"node": "spare-1", "reason": "its connection is slow"}))
    assert "no spare node is left: it stays" in shown(folder, "--dry-run")
    told(folder, ("node_suspected", {"node": node, "reason": ""}))
    assert "none is suspected" in shown(folder, "--dry-run")


def test_a_run_that_has_ended_can_be_told_nothing(folder):
    done = CliRunner().invoke(main, ["stragglers", str(folder.root), "--off"])
    assert isinstance(done.exception, UsageError)
    assert "[observe]" in str(done.exception.next)
