"""What runs beside the ranks of a node: lent what the agent has, looked with every second, and apart from each other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cordee.control.agent import companions as port
from cordee.control.agent.companions import Companion, CompanionHost, Companions, TimeSpent
from cordee.control.agent.troubles import NodeTroubles
from cordee.wire.messages import Gather, KindTimes, NodeFinding, RankDigest, RankStand, SlowLink, StopAt
from support.runs.watched_ranks import RecordingUplink, plan_for

HERE = f"{__name__}:"


class OfOld(Companion):
    """One that was written before there was anything but this."""

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        return {**env, "OLD": str(rank)}


class Failing(Companion):
    def attach(self, host: CompanionHost) -> Any:
        return {Gather: lambda order, body: None}

    def look(self, now: float) -> None:
        raise OSError("no room")

    def rank_ended(self) -> None:
        raise OSError("no room for the last word")


class Looking(Companion):
    def attach(self, host: CompanionHost) -> Any:
        self.host, self.looks = host, 0
        return {StopAt: lambda order, body: None}

    def look(self, now: float) -> None:
        self.looks += 1

    def findings(self) -> tuple[NodeFinding, ...]:
        return (NodeFinding("a", 1 + self.looks // 100, False, {}),)

    def stands(self) -> tuple[RankStand, ...]:
        return (RankStand(self.host.pids()[4], float(self.looks), 0.0, None, False, ""),)


DIGEST = RankDigest(4, 10.0, 3, *[KindTimes(2.0, 20, 0.5, 1.0)] * 4, 0.0, 2.0, 0, 0.0)
LINK = SlowLink("10.0.0.2", 100, 3)


class Measuring(Companion):
    def spent(self) -> TimeSpent:
        return TimeSpent((DIGEST,), (LINK,))


class LastWord(Companion):
    said: list[str] = []

    def rank_ended(self) -> None:
        self.said.append(self.node)


def test_what_ranks_did_is_not_told_where_nobody_looks(tmp_path: Path):
    plan = plan_for(tmp_path)
    without = Companions(plan._replace(node_parts={"companion/a": f"{HERE}OfOld"}), "n")
    assert without.spent() == TimeSpent(None, ())
    parts = {"companion/a": f"{HERE}OfOld", "companion/b": f"{HERE}Measuring"}
    assert Companions(plan._replace(node_parts=parts), "n").spent() == TimeSpent((DIGEST,), (LINK,))


def test_one_that_fails_when_a_rank_ends_keeps_no_other_from_its_last_word(tmp_path: Path):
    class_of = {"companion/a": f"{HERE}Failing", "companion/b": f"{HERE}LastWord", "companion/c": f"{HERE}OfOld"}
    companions, told = Companions(plan_for(tmp_path)._replace(node_parts=class_of), "n"), list[str]()
    LastWord.said.clear()
    companions.rank_ended(told.append)
    assert LastWord.said == ["n"]
    assert len(told) == 1
    assert "no room for the last word" in told[0]


def test_all_are_lent_the_same_and_one_that_fails_keeps_no_other_from_looking(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(port, "_LOOK_EVERY_S", 0.01)

    async def live() -> tuple[Any, ...]:
        parts = {"companion/a": f"{HERE}Failing", "companion/b": f"{HERE}Looking", "companion/c": f"{HERE}OfOld"}
        companions = Companions(plan_for(tmp_path)._replace(node_parts=parts), "n")
        none: Any = None
        host = CompanionHost(lambda: 1, lambda: {4: 77}, dict, lambda: tmp_path, tmp_path, none, RecordingUplink())
        handlers = companions.attach(host)
        assert set(handlers) == {Gather, StopAt}
        assert companions.environment({"A": "1"}, 5) == {"A": "1", "OLD": "5"}
        troubles, sent = NodeTroubles("n"), []
        looking = asyncio.ensure_future(companions.run(troubles, lambda: sent.append(companions.findings())))
        while companions.stands()[0].stands_s < 3:
            await asyncio.sleep(0.01)
        looking.cancel()
        return companions.stands()[0].rank, troubles.texts, sent

    rank, texts, sent = asyncio.run(live())
    assert rank == 77
    assert [[one.cause for one in found] for found in sent] == [["a"]], "what is found is sent at once, and not again"
    assert texts == ["what runs beside the ranks of this node has failed: OSError: no room"]
