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
    """A node whose agent has said all but so many bytes, and is told what a supervisor says at the end."""

    name, connection, queued_log_bytes = "n1", None, 0

    def __init__(self, unread_bytes: int = 0) -> None:
        self.unread_bytes = unread_bytes


class Finishing:
    """A supervisor whose run, or segment, has come to its end; `at_goodbye` is done while its agents are let go."""

    def __init__(self, folder: RunFolder, at_goodbye, unread_bytes: int = 0, stored: bool = True) -> None:
        self.folder, self.continued, self.let_go, self.stored, self.byes = folder, [], [], stored, []
        self.ownership = owner_of(folder)
        self.epoch = self.ownership.claim()
        journal = JournalWriter(folder.journal, f"supervisor-{self.epoch}", self.epoch)
        intake = SimpleNamespace(flush=lambda: None, close=self._close, write_the_rest=self._all, cut_off={})

        def tell(node, message) -> None:
            if isinstance(message, messages.Bye):
                self.byes.append(message)
                at_goodbye()

        agents = SimpleNamespace(tell=tell)
        place = SimpleNamespace(
            chains=True,
            seals=True,
            go_on=self._go_on,
            let_go=self._let_go,
            plan=SimpleNamespace(parent="", node_parts={}),
        )
        checkpoints = SimpleNamespace(newest=lambda: None)
        nodes = {"n1": Saying(unread_bytes)}
        parts = Parts(folder, place, journal, Lanes(), checkpoints, self.ownership, agents, nodes, intake)
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

    async def _close(self, most_s: float) -> bool:
        return self.stored

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


@pytest.mark.parametrize(("unread_bytes", "stored"), [(0, True), (0, False), (8, True)])
def test_what_is_not_stored_is_left_on_its_node_where_the_run_goes_on(folder, monkeypatch, unread_bytes, stored):
    monkeypatch.setattr("cordee.control.supervisor.run_end._LAST_TELEMETRY_S", 0.0)
    for over, goes_on in ((SegmentOver("preempted", "preempted"), True), (FINISHED, False)):
        finishing = Finishing(folder, lambda: None, unread_bytes, stored)
        finishing.end(over)
        assert finishing.byes == [messages.Bye(another=goes_on and (unread_bytes > 0 or not stored))]
