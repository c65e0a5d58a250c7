"""Everything that a supervisor does because time passes: leases, looks at disks, what is written now and then."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Callable, Optional

from cordee.control.supervisor import closing_findings as remarks
from cordee.control.supervisor.decisions.vocabulary import HeldUp, LeasesDue
from cordee.control.supervisor.disks.stalls import Stalls
from cordee.control.supervisor.parts import Parts
from cordee.control.supervisor.telemetry.news import NewsFeed
from cordee.control.supervisor.timing.paces import LOCAL, SHARED, Paces
from cordee.control.supervisor.timing.progress import ProgressPace
from cordee.control.supervisor.troubles import SupervisorTroubles
from cordee.core.clock import monotonic
from cordee.core.errors import OwnershipError, RunFolderError
from cordee.machine.mounts import is_shared
from cordee.runs.checkpoint import BEAT_S, Checkpoint
from cordee.runs.folder import say
from cordee.runs.lane import Inline, RepeatedLook

_TICK_S = 0.2
_LATE_S = 1.0
_SECOND_S = 1.0
_PROGRESS_S, _SHARED_PROGRESS_S = 2.0, 8.0
_SEAL_S = 30.0
_LEASES_AT_ONCE = 250


class Ticker:
    """What is due at which time.

    Args:
        parts: of this supervisor.
        troubles: where it is said what failed.
        heartbeat_s: between two leases.
        seen: the newest checkpoint that is in the journal.
        requested: called with each request that is found in the run's folder.
        second: called every second.
        keep_s: for how long samples are kept; None: for ever.

    Attributes:
        notices, sealer: what is said of telemetry, and what seals it.
        ending: the run is over: nodes that leave are not missed, and nothing is sealed beside the end.
    """

    def __init__(
        self,
        parts: Parts,
        troubles: SupervisorTroubles,
        heartbeat_s: float,
        seen: Optional[str],
        requested: Callable[[dict[str, Any]], None],
        second: Callable[[], None],
        keep_s: Optional[float] = None,
    ) -> None:
        folder, place, journal, lanes, checkpoints, ownership, agents, nodes, intake = parts
        self._folder, self._place, self._journal, self._lanes = folder, place, journal, lanes
        self._checkpoints = checkpoints
        self._agents, self._nodes, self._intake, self._troubles = agents, nodes, intake, troubles
        self._heartbeat_s, self._seen, self._requested, self._second = heartbeat_s, seen, requested, second
        self._news = NewsFeed(folder.root, journal, intake, lanes.looking)
        self.sealer = remarks.Sealer(folder, journal, lanes.looking, keep_s)
        self.notices = remarks.Notices(intake, journal)
        shared = is_shared(str(folder.root))
        self._progress = ProgressPace(_SHARED_PROGRESS_S if shared else 0.0)
        self._paces = Paces(SHARED if shared else LOCAL, monotonic())
        self._stalls = Stalls(str(folder.root))
        self._owned = "ours"
        self.ending = False

        def look(what: str, lane: Inline, work: Callable[[], Any], told: Callable[[Any], None]) -> RepeatedLook:
            return RepeatedLook(lane, work, told, lambda error: troubles.say(f"{what} failed", error))

        looking = lanes.looking
        self._requests = look("reading requests", looking, lambda: place.requests(ownership.look), self._read_requests)
        self._owner = look("looking for a newer owner", looking, ownership.look, self._owner_seen)
        self._others = look("looking after others", looking, place.look_after, lambda _: None)
        self._newest = look("looking for checkpoints", lanes.checkpoints, checkpoints.glance, self._glanced)
        in_use = "saying that checkpoints are in use"
        self._in_use = look(in_use, lanes.checkpoints, checkpoints.beat, lambda _: None)

    async def run(self) -> None:
        """Do what is due; returns only when the run belongs to somebody else.

        Raises:
            OwnershipError: a newer supervisor owns it.
            RunFolderError: its folder was deleted.
        """
        began = last = monotonic()
        due = {"second": 0.0, "lease": 0.0, "progress": began + _PROGRESS_S, "beat": 0.0, "seal": began + _SEAL_S}
        do = self._troubles.do
        while True:
            await asyncio.sleep(_TICK_S)
            now = monotonic()
            if now - last > _LATE_S:
                self._agents.happened(HeldUp(now - last))
            last = now
            if now >= due["lease"]:
                due["lease"] = now + self._heartbeat_s
                do("renewing leases", self._renew_leases)
            do("storing telemetry", self._intake.tick)
            # A pass of the loop each: with thousands of nodes telemetry and news take tens of milliseconds.
            await asyncio.sleep(0)
            do("the sign of life", self._place.beat)
            if self._paces.due("requests", now):
                self._requests.begin()
            do("telling the news", self._tell_news)
            if now >= due["second"]:
                due["second"] = now + _SECOND_S
                self._each_second(now)
            if now >= due["seal"] and not self.ending and self._place.seals:
                due["seal"] = now + _SEAL_S
                do("sealing", self.sealer.begin)
            if self._paces.due("checkpoints", now):
                self._newest.begin()
            if now >= due["beat"]:
                due["beat"] = now + BEAT_S
                self._in_use.begin()
            if now >= due["progress"]:
                due["progress"] = now + _PROGRESS_S
                do("writing the progress", self.write_progress)
                do("writing findings", self.notices.tell)
                do("writing the journal", self._journal.flush)

    def requests_are_there(self) -> None:
        """A client says that it has left a request."""
        self._paces.news("requests", monotonic())

    def write_progress(self, last: bool = False) -> None:
        """Write how far the ranks are, if it is time to; `last`: if it is new."""
        now = (self._intake.step, self._intake.total)
        if self._progress.due(monotonic(), *now, last=last):
            self._news.unmarked += 1
            self._journal.append("progress", durable=False, waits=True, step=now[0], total=now[1])

    def _glanced(self, newest: Optional[Checkpoint]) -> None:
        self.note_checkpoint(newest)
        self._paces.cost("checkpoints", self._checkpoints.operations, monotonic())

    def note_checkpoint(self, newest: Optional[Checkpoint]) -> None:
        """Write which checkpoint is the newest, if it is new."""
        if newest is not None and newest.name != self._seen:
            self._seen = newest.name
            self._paces.news("checkpoints", monotonic())
            self._journal.append("checkpoint_seen", durable=False, name=newest.name, step=newest.step)

    def _each_second(self, now: float) -> None:
        if self._paces.due("owner", now):
            self._owner.begin()
        self._others.begin()
        if self._owned == "newer":
            raise OwnershipError("a newer supervisor owns this run")
        if self._owned == "gone":
            raise RunFolderError("the run's folder was deleted", given=str(self._folder.root))
        self._say_stalls(now)
        self._troubles.do("looking for silent nodes", self._second)

    def _renew_leases(self) -> None:
        """Renew the leases, those of thousands of nodes in parts, evenly until they are due again: none holds the loop up for long."""
        parts = -(-len(self._nodes) // _LEASES_AT_ONCE)
        self._renew_part(0, parts)
        for part in range(1, parts):
            after_s = self._heartbeat_s * part / parts
            asyncio.get_running_loop().call_later(
                after_s, self._troubles.do, "renewing leases", partial(self._renew_part, part, parts)
            )

    def _renew_part(self, part: int, parts: int) -> None:
        self._agents.happened(LeasesDue(monotonic(), part, parts))

    async def tell_the_rest(self) -> None:
        """Tell those who wait how it has ended, once this does nothing any more."""
        self._news.ending = self.ending
        await self._news.tell_the_rest(self._nodes.values())

    def _tell_news(self) -> None:
        self._news.ending = self.ending
        self._news.look(self._nodes.values())

    def _owner_seen(self, owned: str) -> None:
        self._owned = owned

    def _read_requests(self, requests: list[dict[str, Any]]) -> None:
        for request in requests:
            self._requested(request)

    def _say_stalls(self, now: float) -> None:
        """Say that the run folder's disk refuses or stands still, and that it does not any more."""
        error = self._journal.last_error
        words = (error.strerror or str(error)) if error is not None else ""
        said = self._stalls.look(now, self._journal.refused_since, words, self._lanes.busy_s)
        if said.log:
            say(f"cordee supervisor: {said.log}")
        self._troubles.stalled(said.finding)
