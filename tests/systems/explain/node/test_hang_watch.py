"""Beside the lead of a run: what is collected of a hang, what is written of it, and what becomes of the run."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from cordee.core.findings import Finding
from cordee.runs.folder import RunFolder
from cordee.runs.lane import Lane
from cordee.systems.explain.node.hang import files
from cordee.systems.explain.node.hang import watch as watching
from cordee.systems.explain.node.hang.watch import HangWatch
from cordee.wire.messages import Gather, Gathered, RanksEnded, RanksStarted, RankStand, StartedRank, Telemetry

NODES = [SimpleNamespace(name=name) for name in ("n1", "n2")]
UNKNOWN = Finding("nobody can be blamed", "warn", "hang-unknown")
CAUSE = Finding("rank 3 is stopped", rule="hang-stopped", evidence={"ranks": [3], "nodes": ["n2"]})


class Run:
    """Two nodes with two ranks each, and everything that a watcher has of a supervisor; seconds pass when they are told to."""

    def __init__(self, tmp_path, monkeypatch, judged: bytes | None = None, **hang: Any) -> None:
        self.now, self.findings, self.orders, self.asked = 100.0, [], [], []
        self.gone: set[str] = set()
        self.attempt = SimpleNamespace(number=1, nodes=NODES, ranks_per_node=2)
        monkeypatch.setattr(watching, "monotonic", lambda: self.now)

        self.judged = judged

        async def document_side(*_: str, most_s: float, nice: int) -> bytes | None:
            return self.judged

        monkeypatch.setattr(watching, "document_side", document_side)
        step = SimpleNamespace(systems={"explain": hang})
        self.folder = RunFolder(tmp_path)
        run = SimpleNamespace(
            plan=SimpleNamespace(step=step, sampling=SimpleNamespace(interval_s=1.0)),
            folder=self.folder,
            journal=SimpleNamespace(append=self.append),
            order=self.order,
            attempt=lambda: self.attempt,
            happened=self.asked.append,
            lane=Lane,
        )
        self.watch = HangWatch(run)  # type: ignore[arg-type]

    def append(self, _: str, finding: dict, replaces: str | None = None) -> None:
        self.findings = [one for one in self.findings if one["text"] != replaces] + [finding]

    def order(self, node, message) -> bool:
        self.orders.append((node.name, message))
        return node.name not in self.gone

    def start(self) -> None:
        for at, node in enumerate(NODES):
            ranks = (2 * at, 2 * at + 1)
            self.watch.rank_news(node, RanksStarted(self.attempt.number, tuple(StartedRank(rank, 1) for rank in ranks)))

    def pass_second(self, stood_s: float | None) -> None:
        """A second in which all ranks have stood for so long, or go on."""
        self.now += 1.0
        for at, node in enumerate(NODES):
            stands = (
                ()
                if stood_s is None
                else tuple(RankStand(rank, stood_s, stood_s, 1.0, True, "") for rank in (2 * at, 2 * at + 1))
            )
            self.watch.telemetry(node, Telemetry(None, (), stands=stands), b"")
        self.watch.second(self.now)

    async def hang(self) -> None:
        """All ranks stand until that is said."""
        for second in range(1, 80):
            self.pass_second(float(second) if second >= 5 else None)
            await asyncio.sleep(0)
            if self.orders:
                return

    async def answered(self) -> None:
        """Both nodes tell that they have nothing more, and what follows is done."""
        for node in NODES:
            self.watch.gathered(node, Gathered(self.orders[-1][1].id), b"")
        await self.done()

    async def done(self) -> None:
        while self.watch._task is not None:
            await asyncio.sleep(0.01)


def judged(*findings: Finding) -> bytes:
    return json.dumps({"findings": [one.document() for one in findings]}).encode()


@pytest.fixture
def run(tmp_path, monkeypatch):
    return lambda *judged, **hang: Run(tmp_path, monkeypatch, *judged, **hang)


def test_all_nodes_are_asked_once_what_they_tell_is_kept_and_the_cause_is_written(run, tmp_path):
    async def main() -> None:
        one = run(judged(CAUSE))
        one.start()
        await one.hang()
        (first, gather), (second, _) = one.orders
        assert (first, second) == ("n1", "n2")
        assert isinstance(gather, Gather)
        one.watch.gathered(NODES[1], Gathered(gather.id, "rank-3.json", True), b"{}")
        one.watch.gathered(NODES[1], Gathered("hang-9", "rank-2.json", True), b"{}")  # of nobody's question
        await one.answered()
        assert [finding["rule"] for finding in one.findings] == ["hang-stopped"]
        assert one.asked == []
        told = json.loads((tmp_path / "hangs/1/hang.json").read_text())
        assert (told["world"], told["attempt"], told["ranks"]["3"][0]) == (4, 1, "n2")
        assert not (tmp_path / "hangs/1/rank-2.json").exists()
        assert (tmp_path / "hangs/1/rank-3.json").read_bytes() == b"{}"

    asyncio.run(main())


@pytest.mark.parametrize(("action", "reason"), [("restart", "hang"), ("end", "end")])
def test_the_ranks_are_asked_to_stop_where_that_is_wanted(run, action, reason):
    async def main() -> None:
        one = run(judged(CAUSE), action=action, after_s=20.0)
        one.start()
        await one.hang()
        await one.answered()
        (found,) = one.asked
        failure = found.ask.outcome.failure
        assert (found.attempt, failure.kind, failure.reason) == (1, "hang", reason)
        assert (failure.rank, failure.node, failure.message) == (3, "n2", "rank 3 is stopped")

    asyncio.run(main())


def test_a_dump_that_comes_late_is_judged_again_and_its_answer_takes_the_place_of_unknown(run, tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "_OTHERS_S", 0.0)

    async def main() -> None:
        one = run(judged(UNKNOWN))
        one.start()
        await one.hang()
        await one.answered()
        assert [finding["rule"] for finding in one.findings] == ["hang-unknown"]
        one.judged = judged(CAUSE)
        assert one.orders[-1][1].late
        one.watch.gathered(NODES[1], Gathered(one.orders[-1][1].id, "rank-3.flight", True), b"dump")
        while one.watch._judging_again:
            await asyncio.sleep(0.01)
        assert [finding["rule"] for finding in one.findings] == ["hang-stopped"]
        assert (tmp_path / "flight/attempt-1/rank-3.pkl").read_bytes() == b"dump"
        notes = json.loads((tmp_path / "hangs/1/hang.json").read_text())["notes"]
        assert notes == ["n2: rank-3.flight came late"]

    asyncio.run(main())


def test_a_judgement_that_was_killed_is_tried_once_more(run, monkeypatch):
    monkeypatch.setattr(watching, "_OTHERS_S", 0.0)

    async def main() -> None:
        one = run(None)
        answers = iter([None, judged(CAUSE)])

        async def document_side(*_: str, most_s: float, nice: int) -> bytes | None:
            return next(answers)

        monkeypatch.setattr(watching, "document_side", document_side)
        one.start()
        await one.hang()
        await one.answered()
        while one.watch._judging_again:
            await asyncio.sleep(0.01)
        assert [finding["rule"] for finding in one.findings] == ["hang-stopped"]

    asyncio.run(main())


def test_a_busy_node_is_waited_for_as_long_as_it_says(run, monkeypatch):
    monkeypatch.setattr(watching, "times_longer", lambda: 1.0)
    monkeypatch.setattr(watching, "_COLLECT_S", 0.01)
    monkeypatch.setattr(watching, "_MORE_S", 0.01)

    async def main() -> None:
        one = run(judged(CAUSE))
        one.start()
        await one.hang()
        gather = one.orders[-1][1]
        one.watch.gathered(NODES[1], Gathered(gather.id, times=8.0), b"")
        assert one.watch._collecting is not None
        assert one.watch._collecting.times == 8.0
        await one.answered()
        assert one.watch._collecting.notes == []

    asyncio.run(main())


def test_ranks_that_went_on_while_it_was_collected_are_left_alone(run):
    async def main() -> None:
        one = run(judged(CAUSE), action="restart")
        one.start()
        await one.hang()
        one.pass_second(None)
        await one.answered()
        assert [finding["rule"] for finding in one.findings] == ["hang-over", "hang-stopped"]
        assert one.asked == []

    asyncio.run(main())


def test_without_the_document_side_it_is_said_who_stood(run):
    async def main() -> None:
        one = run(None, action="restart")
        one.start()
        one.watch.rank_news(NODES[0], RanksEnded(1, ()))
        await one.hang()
        await one.answered()
        (finding,) = one.findings
        assert finding["rule"] == "hang-unknown"
        assert "no rank of attempt 1" in finding["text"]
        assert len(one.asked) == 1

    asyncio.run(main())


@pytest.mark.parametrize("refused", ["write_atomically", "begin"])
def test_a_disk_that_takes_nothing_is_named_and_the_ranks_are_ended_all_the_same(run, monkeypatch, refused):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files if refused == "write_atomically" else files.HangFiles, refused, full)

    async def main() -> None:
        one = run(None, action="restart")
        one.start()
        await one.hang()
        await one.answered()
        (finding,) = one.findings
        assert finding["rule"] == "hang-unknown"
        assert "No space left on device" in finding["text"]
        assert "room" in finding["next"]
        assert len(one.asked) == 1

    asyncio.run(main())


def test_a_node_whose_agent_is_gone_is_not_waited_for_and_named(run, tmp_path):
    async def main() -> None:
        one = run(judged(CAUSE))
        one.gone = {"n1", "n2"}
        one.start()
        await one.hang()
        await one.done()
        notes = json.loads((tmp_path / "hangs/1/hang.json").read_text())["notes"]
        assert notes == ["n1: its agent is gone", "n2: its agent is gone"]

    asyncio.run(main())


def test_so_many_hangs_that_nothing_more_is_collected_still_end_the_ranks(run):
    async def main() -> None:
        one = run(judged(CAUSE), action="restart")
        one.watch._hangs = 20
        one.start()
        await one.hang()
        assert one.orders == []
        assert len(one.asked) == 1

    asyncio.run(main())


def test_stacks_that_are_asked_for_blame_nobody(run, tmp_path):
    async def main() -> None:
        one = run(judged(CAUSE), action="restart")
        one.watch.requested({"request": "stacks"})
        assert one.orders == []  # no rank runs yet
        one.start()
        one.watch.requested({"request": "stacks"})
        one.watch.requested({"request": "stacks"})  # waits for the one at work
        assert len(one.orders) == 0
        await asyncio.sleep(0)
        await one.answered()
        assert (one.findings, one.asked) == ([], [])
        told = json.loads((tmp_path / "hangs/1/hang.json").read_text())
        assert (told["asked"], sorted(told["ranks"])) == (True, ["0", "1", "2", "3"])

    asyncio.run(main())


def test_a_hang_that_is_declared_while_stacks_are_collected_waits_its_turn(run):
    async def main() -> None:
        one = run(judged(CAUSE))
        one.start()
        one.watch.requested({"request": "stacks"})
        for second in range(1, 80):
            one.pass_second(float(second) if second >= 5 else None)
            await asyncio.sleep(0)
        assert len({message.id for _, message in one.orders}) == 1
        await one.answered()
        one.pass_second(80.0)
        await asyncio.sleep(0)
        assert len({message.id for _, message in one.orders}) == 2
        await one.answered()
        assert [finding["rule"] for finding in one.findings] == ["hang-stopped"]

    asyncio.run(main())


def test_stacks_that_are_asked_for_while_a_hang_is_collected_are_told_after_it(run, tmp_path):
    async def main() -> None:
        one = run(judged(CAUSE))
        one.start()
        await one.hang()
        one.watch.requested({"request": "stacks"})
        await one.answered()
        one.pass_second(80.0)
        await asyncio.sleep(0)
        assert len({message.id for _, message in one.orders}) == 2
        await one.answered()
        assert [json.loads((tmp_path / f"hangs/{n}/hang.json").read_text())["asked"] for n in (1, 2)] == [False, True]
        one.pass_second(81.0)
        await asyncio.sleep(0)
        assert len({message.id for _, message in one.orders}) == 2

    asyncio.run(main())


def test_nothing_is_watched_where_nobody_wants_it(run):
    async def main() -> None:
        one = run(None, enabled=False)
        one.start()
        await one.hang()
        assert (one.orders, one.findings) == ([], [])

    asyncio.run(main())
