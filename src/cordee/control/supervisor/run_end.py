"""The end of a run, or of its segment: agents are let go, and the last line is waited for."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple, Optional, Union

from cordee.control.supervisor import closing_findings as remarks
from cordee.control.supervisor import segments
from cordee.control.supervisor.decisions.chain import BY_SCHEDULER, Chain
from cordee.control.supervisor.decisions.outcomes import Ended, SegmentOver
from cordee.control.supervisor.parts import Parts
from cordee.core.clock import monotonic
from cordee.core.errors import EXIT_INTERNAL, CordeeError, OwnershipError
from cordee.core.parts import load
from cordee.runs.children import ChildEnd, ended_child
from cordee.runs.folder import say
from cordee.runs.state import RunState
from cordee.wire import Server, messages

# In `node_parts` of the plan, before the name of a system: `ended(folder, plan, journal)` is called once the run's end is written.
ENDED_PORT = "ended/"
_TICK_S = 0.2
_TELL_S = 45.0
_SECOND_S = 1.0
_REFUSED_S = 5.0
_FULL_DISK_S = 3600.0
_LAST_TELEMETRY_S = _STAND_DOWN_S = 10.0
GIVE_BACK_S = 4.0


class LedSegment(NamedTuple):
    """The segment that this supervisor leads.

    Attributes:
        number: from 1.
        checkpoint: the newest one when it began.
        before: the run's state when this supervisor began.
        left_over: its end, where an earlier supervisor wrote it and was killed before the run went on.
    """

    number: int
    checkpoint: Optional[str]
    before: RunState
    left_over: Optional[SegmentOver]


class Ending:
    """Ends a run or its segment.

    Args:
        parts: of this supervisor.
        sealer, notices: its too.
        chain: decides whether the run goes on.
    """

    def __init__(
        self,
        parts: Parts,
        sealer: remarks.Sealer,
        notices: remarks.Notices,
        chain: Chain,
    ) -> None:
        self._folder, self._place, self._journal, self._lanes = parts.folder, parts.place, parts.journal, parts.lanes
        self._checkpoints, self._ownership, self._agents = parts.checkpoints, parts.ownership, parts.agents
        self._nodes, self._intake = parts.nodes, parts.intake
        self._sealer, self._notices, self._chain = sealer, notices, chain
        self._released, self._began = False, monotonic()

    async def end(
        self, over: Union[Ended, SegmentOver], segment: LedSegment, server: Server, group: str
    ) -> Optional[Ended]:
        """Return how the run has ended, None when it goes on in another allocation.

        Args:
            over: what has come to its end.
            segment: the one that this supervisor leads.
            server: that agents and clients are connected to.
            group: what agents call the ranks of the newest attempt.

        Raises:
            OwnershipError: a newer supervisor leads the run.
        """
        ended = await self._end_segment(over, segment, server, group) if isinstance(over, SegmentOver) else over
        if ended is not None:
            ended = await self._end_run(ended, server, group)
        await asyncio.get_running_loop().run_in_executor(None, self._place.let_go, ended is not None)
        return ended

    async def refuse_if_followed(self) -> None:
        """Look whose the run is: whoever follows has read a journal that has no end, and goes on from there.

        Raises:
            OwnershipError: a newer supervisor's.
        """
        if await self._lanes.looking.run(self._ownership.look) == "newer":
            raise OwnershipError("a newer supervisor owns this run")

    async def stand_down(self) -> None:
        """Write what telemetry it has told agents is stored, and the disk has not taken for good: nobody else has it."""
        closing = asyncio.ensure_future(self._intake.close(_STAND_DOWN_S))
        while not closing.done():
            self._place.beat()
            await asyncio.wait({closing}, timeout=_TICK_S)

    async def _end_segment(self, over: SegmentOver, segment: LedSegment, server: Server, group: str) -> Optional[Ended]:
        """Have the run go on in another allocation and return None, or return how it ends because it cannot."""
        newest = await self._lanes.checkpoints.run(self._checkpoints.newest)
        progressed = newest is not None and newest.name != segment.checkpoint
        how = self._chain.next(over.reason)
        if segment.left_over is None:
            refusal = self._chain.refusal(over, segment.number, progressed, segment.before, monotonic() - self._began)
            if refusal is not None:
                return Ended("failed", over.exit_code, refusal.reason, refusal.text)
            segments.write_end(self._journal, segment.number, over.reason, newest, progressed, how)
        await self._release_nodes(group, goes_on=True)
        for finding in remarks.cut_off(self._intake):
            self._journal.append("finding", finding=finding.document())
        self._intake.cut_off.clear()
        server.close()
        await self._write_the_rest()
        if how == BY_SCHEDULER:
            return None
        await self.refuse_if_followed()
        try:
            going = await asyncio.get_running_loop().run_in_executor(None, self._place.go_on, how)
        except CordeeError as error:
            return Ended("failed", EXIT_INTERNAL, "not_continued", f"{over.text}, and it cannot continue: {error.text}")
        self._journal.append("continued", **going)
        return None

    async def _end_run(self, ended: Ended, server: Server, group: str) -> Ended:
        await self._decide(ended)
        await self._release_nodes(group)
        ended = await self._tell_parent(ended)
        for finding in remarks.closing_findings(list(self._nodes.values()), self._intake):
            self._journal.append("finding", finding=finding.document())
        self._notices.tell()
        state, code, reason = ended.state, ended.exit_code, ended.reason
        self._journal.append("ended", state=state, exit_code=code, reason=reason, text=ended.text)
        server.close()
        await self._write_the_rest()
        await self._tell_people()
        if self._place.seals:
            await remarks.close(self._sealer, GIVE_BACK_S if self._place.chains else None)
        return ended

    async def _tell_people(self) -> None:
        """Have systems do what they do once the run has ended, and not for long: they call places far away."""
        plan = self._place.plan
        for port, part in sorted(plan.node_parts.items()):
            if port.startswith(ENDED_PORT):
                work = partial(load(part), self._folder, plan, self._journal)
                try:
                    await asyncio.wait_for(self._lanes.make("cordee-ended").run(work), _TELL_S)
                except Exception as error:  # whatever it is, the run has ended
                    say(f"cordee supervisor: {port} failed: {type(error).__name__}: {error}")
        await self._write_the_rest()

    async def _tell_parent(self, ended: Ended) -> Ended:
        """Have what comes after this run start, where it is one of several, and return how it has ended in their eyes."""
        if not self._place.plan.parent:
            return ended
        own = ChildEnd(ended.state, ended.exit_code, ended.reason, ended.text)
        about = (self._folder, self._place.plan, self._ownership.epoch, own, self._place.place)
        end = await asyncio.get_running_loop().run_in_executor(None, ended_child, *about)
        for finding in end.findings:
            self._journal.append("finding", finding=finding.document())
        code = ended.exit_code if end.exit_code is None else end.exit_code
        return Ended(end.state, code, end.reason, end.text)

    async def _decide(self, ended: Ended) -> None:
        """Make the end known to whoever claims the run from now on; waits while the disk does not take it."""
        deadline, pause_s = monotonic() + _FULL_DISK_S, _SECOND_S
        while monotonic() < deadline:
            whose = await self._lanes.looking.run(lambda: self._ownership.decide(ended.document()))
            if whose == "newer":
                raise OwnershipError("a newer supervisor owns this run")
            if whose != "unseen":
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _REFUSED_S)

    async def _release_nodes(self, group: str, goes_on: bool = False) -> None:
        """Take in what the agents still have to say, and let them go; once. Where the run goes on, the rest is left to the next agent there."""
        if self._released:
            return
        self._released = True
        nodes = list(self._nodes.values())
        for node in nodes:
            self._agents.tell(node, messages.Stop(group, 0.0))
        await asyncio.sleep(0)
        deadline = monotonic() + _LAST_TELEMETRY_S
        while (
            any((node.unread_bytes or node.queued_log_bytes) and node.connection for node in nodes)
            and monotonic() < deadline
        ):
            self._intake.flush()
            await asyncio.sleep(_TICK_S)
        stored = await self._intake.close(_LAST_TELEMETRY_S)
        for node in nodes:
            left = node.unread_bytes > 0 or not stored
            self._agents.tell(node, messages.Bye(another=goes_on and left))
            if node.connection is not None:
                await node.connection.drain()

    async def _write_the_rest(self) -> None:
        """Wait for room on a full disk: without its last line the run would be begun again."""
        written = asyncio.ensure_future(self._journal.durable())
        deadline = monotonic() + _FULL_DISK_S
        while not written.done() and monotonic() < deadline:
            await asyncio.wait({written}, timeout=_SECOND_S)
            if isinstance(self._journal.last_error, FileNotFoundError):  # nothing is left to write to
                break
        if written.done() and not await self._intake.write_the_rest(_LAST_TELEMETRY_S):
            say("cordee supervisor: the disk does not take the last telemetry, some of it is lost")
        written.cancel()
