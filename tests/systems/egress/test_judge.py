"""What nodes tell is judged as a sum, told once, and stops the run where that is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cordee.control.supervisor.watchers import WatchedRun
from cordee.runs.lane import Inline
from cordee.systems.egress.node.companion import told_of
from cordee.systems.egress.node.counts import DestinationTraffic
from cordee.systems.egress.node.watch import EgressJudge
from cordee.telemetry.node.blocklog import encode_facts


class Run:
    """A run of two nodes whose watcher is asked what it does."""

    def __init__(self, action: str) -> None:
        self.findings: list[dict[str, Any]] = []
        self.happened: list[Any] = []
        part = {"action": action, "most": 1000, "account": None}
        plan: Any = SimpleNamespace(step=SimpleNamespace(systems={"egress": part}), run="r")
        journal: Any = SimpleNamespace(append=lambda event, finding: self.findings.append(finding))
        attempt: Any = SimpleNamespace(number=1)
        nothing: Any = None
        run = WatchedRun(
            plan, nothing, {}, journal, nothing, lambda: attempt, self.happened.append, nothing, lambda name: Inline()
        )
        self.judge = EgressJudge(run)

    def tell(self, node: str, address: str, sent: int, kind: str = "rest", *, at_once: bool = True) -> None:
        traffic = DestinationTraffic()
        traffic.sent = sent
        body = encode_facts(node, "egress", 0.0, {address: told_of(traffic, kind, "")}, {})
        named: Any = SimpleNamespace(name=node)
        self.judge.telemetry(named, None, body)  # type: ignore[arg-type]
        if at_once:
            self.judge.second(1.0)


@pytest.mark.parametrize(("action", "ended"), [("report", 0), ("stop", 1)])
def test_two_nodes_that_stay_below_are_above_together(action, ended):
    run = Run(action)
    run.tell("n1", "203.0.113.1", 600)
    assert run.findings == []
    run.tell("n2", "203.0.113.2", 500)
    run.tell("n2", "203.0.113.2", 700)
    (finding,) = run.findings
    assert finding["rule"] == "egress-volume"
    assert finding["evidence"]["sent_bytes"] == 1100
    assert finding["evidence"]["nodes"] == ["n1", "n2"]
    assert len(run.happened) == ended
    if ended:
        failure = run.happened[0].ask.outcome.failure
        assert (failure.kind, failure.reason) == ("egress", "end")


def test_it_is_told_again_at_ten_times_as_much():
    run = Run("report")
    for sent in (1100, 5000, 11_000, 20_000):
        run.tell("n1", "203.0.113.1", sent)
    assert [finding["evidence"]["sent_bytes"] for finding in run.findings] == [1100, 11_000]


def test_what_ranks_sent_in_their_last_second_is_told_and_stops_nothing():
    run = Run("stop")
    run.tell("n1", "203.0.113.1", 900, at_once=False)
    run.judge.close()
    assert run.findings == []
    run.tell("n1", "203.0.113.1", 2000, at_once=False)
    run.judge.close()
    assert [finding["evidence"]["sent_bytes"] for finding in run.findings] == [2000]
    assert run.happened == []


def test_what_is_listed_does_not_count():
    run = Run("stop")
    for kind in ("site", "registries", "object_stores", "listed"):
        run.tell("n1", f"{kind}", 10**9, kind)
    assert (run.findings, run.happened) == ([], [])


def test_a_supervisor_that_was_started_again_counts_on():
    """Nodes tell all that was sent since they began; of what has not changed only what has."""
    run = Run("report")
    run.tell("n1", "203.0.113.1", 500)
    named: Any = SimpleNamespace(name="n1")
    news = encode_facts("n1", "egress", 0.0, {"203.0.113.1": {"sent_bytes": 1200}}, {})
    run.judge.telemetry(named, None, news)  # type: ignore[arg-type]
    run.judge.second(2.0)
    assert run.findings[0]["evidence"]["sent_bytes"] == 1200
