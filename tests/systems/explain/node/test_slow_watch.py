"""Beside the lead of a run: what is written of stragglers, and which nodes others are to take the place of."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from cordee.runs.folder import RunFolder
from cordee.runs.lane import Lane
from cordee.systems.explain.node.slow import watch as watching
from cordee.systems.explain.node.slow.watch import STANDING, SlowWatch
from cordee.wire.messages import (
    KindTimes,
    NodeFinding,
    Observe,
    RankDigest,
    RankPlace,
    RanksStarted,
    SlowLink,
    StartedRank,
    Telemetry,
)

NONE = KindTimes(0.0, 0, 0.0, 0.0)
NODES = [SimpleNamespace(name=f"n{at}", address=f"10.0.0.{at}") for at in range(4)]
HEAT = NodeFinding(
    "hardware-throttled heat GPU-1",
    1,
    False,
    {"rule": "hardware-throttled", "text": "GPU-1: heat held its clocks down", "severity": "warn"},
)
CLOSED = NodeFinding("unwatched-hardware x", 1, False, {"rule": "unwatched-hardware", "text": "closed"})


def spent(seconds: float) -> KindTimes:
    return KindTimes(seconds, round(10 * seconds), seconds, seconds**2)


def digest(rank: int, wait_s: float, what: str = "compute") -> RankDigest:
    kinds = {"compute": spent(7.0), "data": NONE, "saving": NONE}
    kinds[what] = spent(kinds[what].seconds + 3.0 - wait_s)
    return RankDigest(
        rank, 10.0, 20, communication=spent(wait_s), delayed_s=0.0, unseen_s=0.0, faults=0, throttled_s=0.0, **kinds
    )


class Run:
    """Four nodes with two ranks each, and everything that a watcher has of a supervisor; time passes when it is told to."""

    def __init__(
        self, folder: Any, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...] = ("train.py",), **explain: Any
    ):
        self.now, self.findings, self.orders, self.suspected = 100.0, [], [], []
        (folder / "control").mkdir(exist_ok=True)
        self.folder = RunFolder(folder)
        self.attempt = SimpleNamespace(number=1, nodes=NODES, ranks_per_node=2)
        monkeypatch.setattr(watching, "monotonic", lambda: self.now)
        monkeypatch.setattr(watching, "unix_s", lambda: 1_000_000 + self.now)
        step = SimpleNamespace(systems={"explain": explain}, tasks=SimpleNamespace(argv=argv))
        run = SimpleNamespace(
            plan=SimpleNamespace(step=step),
            folder=self.folder,
            nodes={node.name: node for node in NODES},
            journal=SimpleNamespace(append=lambda _, finding: self.findings.append(finding)),
            order=lambda node, message: self.orders.append((node.name, message)) or True,
            attempt=lambda: self.attempt,
            suspect=self.suspected.append,
            lane=Lane,
        )
        self.watch = SlowWatch(run)  # type: ignore[arg-type]

    def pass_round(self, slow: dict[int, float] | None = None, what: str = "compute", **more: Any) -> None:
        """Ten seconds, in which ranks wait for 3 s, or for as long as is said."""
        self.now += 10.0
        for at, node in enumerate(self.attempt.nodes):
            each = self.attempt.ranks_per_node
            ranks = range(at * each, (at + 1) * each)
            digests = tuple(digest(rank, (slow or {}).get(rank, 3.0), what) for rank in ranks)
            self.watch.telemetry(node, Telemetry(None, (), digests=digests, **more), b"")
        self.watch.second(self.now)

    def rules(self) -> list[str]:
        return [finding["rule"] for finding in self.findings]

    def standing(self) -> dict[str, Any]:
        # What was brought before is written by then.
        self.watch._lane.submit(lambda: None).result(60)
        return json.loads((self.folder.control / STANDING).read_text())


@pytest.fixture
def run(tmp_path, monkeypatch):
    def made(*argv: str, **explain: Any) -> Run:
        one = Run(tmp_path, monkeypatch, *([argv] if argv else []), **explain)
        one.watch.second(one.now)
        return one

    return made


def test_a_slow_rank_is_written_with_cause_place_what_to_do_and_the_faults_of_its_node(run):
    one = run()
    one.watch.telemetry(NODES[2], Telemetry(None, (), findings=(HEAT, CLOSED)), b"")
    for _ in range(6):
        one.pass_round({5: 1.6})
    (finding,) = one.findings
    assert (finding["rule"], finding["severity"]) == ("straggler-rank", "warn")
    assert "rank 5 on n2 is slow, by 20 %" in finding["text"]
    assert "heat held its clocks down" in finding["text"]
    assert finding["next"]
    evidence = finding["evidence"]
    assert (evidence["ranks"], evidence["nodes"], evidence["cause"]) == ([5], ["n2"], "compute")
    assert [proof["rule"] for proof in evidence["proof"]] == ["hardware-throttled"]
    assert evidence["since"] == pytest.approx(1_000_000 + 100, abs=11)
    assert one.suspected == []


def test_a_node_all_of_whose_ranks_are_slow_is_one_finding(run):
    one = run()
    for _ in range(6):
        one.pass_round({4: 1.6, 5: 1.6})
    assert one.rules() == ["straggler-node"]
    assert one.findings[0]["evidence"]["ranks"] == [4, 5]


def test_who_is_slow_now_is_kept_for_the_command(run):
    one = run()
    for _ in range(6):
        one.pass_round({5: 1.6})
    one.pass_round({5: 1.6})
    told = one.standing()
    assert (told["on"], told["heard"], told["ranks"]) == (True, 8, 8)
    (slow,) = told["slow"]
    assert (slow["rank"], slow["node"], slow["cause"]) == (5, "n2", "compute")
    for _ in range(8):
        one.pass_round()
    assert one.rules() == ["straggler-rank", "straggler-over"]
    assert not one.standing()["slow"]


def test_another_node_is_to_take_its_place_where_that_is_wanted_until_it_is_over(run):
    one = run(stragglers_action="replace")
    for _ in range(6):
        one.pass_round({5: 1.6})
    assert [event.node for event in one.suspected] == ["n2"]
    assert "20 % slower" in one.suspected[0].reason
    assert "a spare node takes its place at the next restart" in one.findings[0]["text"]
    for _ in range(8):
        one.pass_round()
    assert [(event.node, bool(event.reason)) for event in one.suspected] == [("n2", True), ("n2", False)]


def test_no_other_node_mends_what_the_program_does(run):
    one = run(stragglers_action="replace")
    for _ in range(6):
        one.pass_round({5: 1.6}, "data")
    assert one.rules() == ["straggler-rank"]
    assert one.findings[0]["evidence"]["replaced"] is False
    assert one.suspected == []


def test_it_is_switched_off_and_on_while_the_run_goes_on(run):
    one = run()
    one.watch.requested({"request": "stragglers", "on": False})
    assert one.orders == [(node.name, Observe(1, False)) for node in NODES]
    for _ in range(8):
        one.pass_round({5: 1.6})
    assert one.findings == []
    assert one.standing()["on"] is False
    # Another attempt begins as the plan says, and has to be told.
    one.orders.clear()
    one.attempt = SimpleNamespace(number=2, nodes=NODES, ranks_per_node=2)
    one.watch.rank_news(NODES[0], RanksStarted(2, (StartedRank(0, 1),)))
    assert one.orders == [("n0", Observe(2, False))]
    one.watch.requested({"request": "stragglers", "on": True})
    for _ in range(6):
        one.pass_round({5: 1.6})
    assert one.rules() == ["straggler-rank"]


@pytest.mark.parametrize("planned", [True, False])
def test_what_was_switched_stays_so_with_another_supervisor(run, planned):
    one = run(stragglers=planned)
    one.watch.requested({"request": "stragglers", "on": not planned})
    assert one.standing()["on"] is not planned
    other = run(stragglers=planned)
    other.watch.rank_news(NODES[0], RanksStarted(1, (StartedRank(0, 1),)))
    assert other.orders == [("n0", Observe(1, not planned))]
    for _ in range(6):
        other.pass_round({5: 1.6})
    assert other.rules() == ([] if planned else ["straggler-rank"])


@pytest.mark.parametrize("content", ["", "[]", '{"on": 1}', "\0" * 100, "[" * 100_000])
def test_a_torn_file_of_stragglers_changes_nothing(run, tmp_path, content):
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / STANDING).write_text(content)
    one = run()
    for _ in range(6):
        one.pass_round({5: 1.6})
    assert one.rules() == ["straggler-rank"]


@pytest.mark.parametrize(
    "request_", [{"request": "stacks"}, {"request": "stragglers"}, {"request": "stragglers", "on": 1}]
)
def test_requests_that_say_something_else_change_nothing(run, request_):
    one = run(stragglers=False)
    one.watch.requested(request_)
    assert one.orders == []
    for _ in range(8):
        one.pass_round({5: 1.6})
    assert one.findings == []


def test_a_slow_connection_is_written_with_the_node_at_its_other_end(run):
    one = run(stragglers_action="replace")
    for _ in range(8):
        for at, node in enumerate(NODES):
            queued = 5 << 20 if at == 1 else 1000
            one.watch.telemetry(node, Telemetry(None, (), links=(SlowLink(f"10.0.0.{(at + 1) % 4}", queued, at),)), b"")
        one.pass_round()
    assert one.rules() == ["straggler-link"]
    assert one.findings[0]["evidence"]["where"] == "n1 to n2"
    assert [event.node for event in one.suspected] == ["n1"]


def test_stages_of_a_command_that_says_them_are_not_compared_with_each_other(run):
    one = run("train.py", "--pipeline-model-parallel-size", "2", "--tensor-model-parallel-size", "1")
    last_stage = dict.fromkeys((4, 5, 6, 7), 1.0)
    for _ in range(6):
        one.pass_round({**last_stage, 1: 1.6})
    assert [finding["evidence"]["ranks"] for finding in one.findings] == [[1]]


def test_stages_that_ranks_tell_are_not_compared_with_each_other(run):
    one = run()
    last_stage = dict.fromkeys((4, 5, 6, 7), 1.0)
    for at, node in enumerate(NODES):
        told = tuple(RankPlace(1, rank, {"pp": rank // 4, "dp": rank % 4}) for rank in (2 * at, 2 * at + 1))
        old = RankPlace(0, 2 * at, {"pp": 9})
        one.watch.telemetry(node, Telemetry(None, (), places=(*told, old)), b"")
    for _ in range(6):
        one.pass_round({**last_stage, 1: 1.6})
    assert [finding["evidence"]["ranks"] for finding in one.findings] == [[1]]


def test_ranks_that_the_script_has_started_itself_are_judged_on_the_nodes_that_tell_of_them(run):
    one = run()
    one.attempt = SimpleNamespace(number=2, nodes=NODES[:2], ranks_per_node=1)
    for _ in range(8):
        one.now += 10.0
        for at, node in enumerate(NODES[:2]):
            digests = tuple(digest(rank, 1.6 if rank == 5 else 3.0) for rank in range(4 * at, 4 * at + 4))
            one.watch.telemetry(node, Telemetry(None, (), digests=digests), b"")
        one.watch.second(one.now)
    assert [(one["evidence"]["ranks"], one["evidence"]["nodes"]) for one in one.findings] == [([5], ["n1"])]
