"""The end of a segment beside a supervisor that follows just then: whose the run is, has it go on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from cordee.control.supervisor import closing_findings as remarks
from cordee.control.supervisor.decisions.chain import Chain
from cordee.control.supervisor.decisions.outcomes import Ended, SegmentOver
from cordee.control.supervisor.disks.lanes import Lanes
from cordee.control.supervisor.ownership import Ownership
from cordee.control.supervisor.parts import Parts
from cordee.control.supervisor.run_end import Ending, LedSegment
from cordee.core.errors import OwnershipError
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.plan import RunSegment as SegmentPolicy
from cordee.runs.state import RunState
from cordee.wire import messages

FINISHED = Ended("finished", 0, "done", "")


def owner_of(folder: RunFolder) -> Ownership:
    """Return an owner-to-be that takes every other one for dead."""
    return Ownership(folder.control / "epochs", lambda owner: False)


class Saying:
    """A node whose agent has one more thing to say, and is told what a supervisor says at the end."""

    name, connection, unread_bytes, queued_log_bytes = "n1", None, 0, 0


class Finishing:
    """A supervisor whose run, or segment, has come to its end; `at_goodbye` is done while its agents are let go."""

    def __init__(self, folder: RunFolder, at_goodbye) -> None:
        self.folder, self.continued, self.let_go = folder, [], []
        self.ownership = owner_of(folder)
        self.epoch = self.ownership.claim()
        journal = JournalWriter(folder.journal, f"supervisor-{self.epoch}", self.epoch)
        intake = SimpleNamespace(flush=lambda: None, close=self._nothing, write_the_rest=self._all)
        agents = SimpleNamespace(tell=lambda node, message: isinstance(message, messages.Bye) and at_goodbye())
        place = SimpleNamespace(
            chains=True, go_on=self._go_on, let_go=self._let_go, plan=SimpleNamespace(parent="", node_parts={})
        )
        checkpoints = SimpleNamespace(newest=lambda: None)
        parts = Parts(folder, place, journal, Lanes(), checkpoints, self.ownership, agents, {"n1": Saying()}, intake)
        notices = SimpleNamespace(tell=lambda: None)
        self.ending = Ending(parts, None, notices, Chain(SegmentPolicy(max_segments=3), possible=True))

    def end(self, over) -> object:
        segment, server = LedSegment(1, None, RunState(), None), SimpleNamespace(close=lambda: None)
        return asyncio.run(self.ending.end(over, segment, server, "ranks-1"))

    @property
    def events(self) -> list[str]:
        return [event["event"] for event in read_journal(self.folder.journal)]

    def _go_on(self, how: str) -> dict[str, str]:
        self.continued.append(how)
        return {"how": how}

    def _let_go(self, ended: bool) -> None:
        self.let_go.append((ended, self.events[-1]))

    async def _nothing(self, most_s: float) -> None:
        return None

    async def _all(self, most_s: float) -> bool:
        return True


@pytest.fixture
def folder(tmp_path, monkeypatch) -> RunFolder:
    async def close(*_) -> None:
        return None

    monkeypatch.setattr(remarks, "close", close)
    monkeypatch.setattr(remarks, "closing_findings", lambda nodes, intake: [])
    return RunFolder.create(tmp_path, "t-20261121T000000Z-aaaa")


def test_a_supervisor_that_is_followed_while_it_lets_its_agents_go_queues_nothing_again(folder):
    finishing = Finishing(folder, lambda: owner_of(folder).claim())
    with pytest.raises(OwnershipError, match="newer supervisor"):
        finishing.end(SegmentOver("preempted", "preempted"))
    assert (finishing.continued, finishing.let_go) == ([], [])
    assert finishing.events == ["segment_ended"]


def test_a_supervisor_that_nobody_follows_writes_the_end_once_or_has_the_run_go_on(folder):
    finishing = Finishing(folder, lambda: None)
    assert finishing.end(SegmentOver("preempted", "preempted")) is None
    assert finishing.continued == ["requeue"]
    assert finishing.let_go == [(False, "continued")]
    last = Finishing(folder, lambda: None)
    assert last.end(FINISHED) == FINISHED
    assert last.let_go == [(True, "ended")]
    assert finishing.events == ["segment_ended", "continued", "ended"]
