"""Beside the ranks of a node: which of them do not go on, and, when the supervisor asks, what shows where they stand."""

from __future__ import annotations

from collections import deque
from typing import Any, Hashable, Iterator, Optional

from cordee.control.agent.companions import Companion, CompanionHost, TimeSpent
from cordee.control.agent.orders import Handlers
from cordee.core.clock import unix_s
from cordee.runs.plan import RunPlan
from cordee.systems.explain.node.activity import RankActivity
from cordee.systems.explain.node.gather import Gathering
from cordee.systems.explain.node.motion import RankMotion
from cordee.systems.explain.node.pulses import NodePulses, RankProcess, trainers
from cordee.systems.explain.node.rank_times import RankTimes
from cordee.systems.explain.node.slow_links import SlowLinks
from cordee.wire.messages import Gather, Observe, ProfileRanks, RankStand, SlowLink
from cordee.wire.pulse import FOLDER

STANDS_S = 5.0
# A rank that has gone on since is not looked at more closely.
_LOOK_CLOSER_S = 2.0
# The loop itself was late by more than this: the machine was paused, or it is so busy that ranks are late as well.
_LATE_S = 3.0
_STOPPED = ("T", "t")
_MOST_WINDOWS = 12  # of links, that nobody has taken


class _Watched:
    """One rank: how far it is, and what its processes do."""

    def __init__(self, rank: int, root: int, now: float) -> None:
        self.root = root
        self.motion, self.activity = RankMotion(rank, now), RankActivity(root)


class StandWatch(Companion):
    """Looks every second at how far the ranks are; and at what they do with their time; see Companion.

    Nothing of it is done where `[hang]` and `[observe]` say so.
    """

    def __init__(self, plan: RunPlan, node: str) -> None:
        super().__init__(plan, node)
        about = plan.step.systems.get("explain", {})
        self._times = RankTimes(bool(about.get("stragglers", True)))
        self._links = SlowLinks()
        self._links_told: deque[tuple[SlowLink, ...]] = deque(maxlen=_MOST_WINDOWS)
        self._stands_wanted = bool(about.get("enabled", True))
        self._wanted = self._stands_wanted or self._times.wanted
        self._host: Optional[CompanionHost] = None
        self._attempt, self._began_at = 0, unix_s()
        self._pulses: Optional[NodePulses] = None
        self._ranks: dict[int, _Watched] = {}
        self._looked_at: Optional[float] = None
        self._stands: tuple[RankStand, ...] = ()
        self._stacks: Optional[Gathering] = None
        self._was_asked = False

    def attach(self, host: CompanionHost) -> Handlers:
        self._host = host
        collectors = {Gather: "node.collect", ProfileRanks: "node.profile.measurement"}
        made = {
            order: Gathering(
                f"cordee.systems.explain.{module}", self.plan, self.node, host, self._about, order is Gather
            )
            for order, module in collectors.items()
        }
        self._stacks = made[Gather]
        return {Observe: self._observe, **{order: gathering.begin for order, gathering in made.items()}}

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        if not self._wanted or self._host is None:
            return env
        return {**env, FOLDER: str(self._host.folder())}

    def look(self, now: float) -> None:
        if self._host is None or not self._wanted:
            return
        late_s = now - self._looked_at if self._looked_at is not None else 0.0
        self._looked_at = now
        attempt, roots = self._host.attempt(), self._host.pids()
        asks = self._stacks is not None and self._stacks.at_work
        asked, self._was_asked = asks or self._was_asked, asks
        if attempt != self._attempt or self._pulses is None:
            self._begin(attempt)
        assert self._pulses is not None
        self._pulses.look(roots, now)
        self._ranks = {rank: watched for rank, watched in self._ranks.items() if roots.get(rank) == watched.root}
        steps = self._host.steps()
        for rank, root in roots.items():
            watched = self._ranks.setdefault(rank, _Watched(rank, root, now))
            processes = self._pulses.of_rank(rank)
            if late_s > _LATE_S:
                watched.motion.unseen(late_s)
                for process in processes:
                    process.unseen(late_s)
            _look(watched, processes, steps.get(rank), now, asked)
        self._look_at_time(now)
        stands = (watched.motion.stand(now) for watched in self._ranks.values())
        self._stands = tuple(stand for stand in stands if stand.stands_s >= STANDS_S)

    def stands(self) -> tuple[RankStand, ...]:
        of_now = self._host is not None and self._host.attempt() == self._attempt
        return self._stands if of_now and self._stands_wanted else ()

    def spent(self) -> TimeSpent:
        links = tuple(link for window in self._links_told for link in window)
        self._links_told.clear()
        return TimeSpent(self._times.taken(), links)

    async def close(self) -> None:
        self._links.close()
        if self._pulses is not None:
            self._pulses.close()

    def _observe(self, order: Observe, body: bytes) -> None:
        if self._host is not None and order.attempt == self._host.attempt():
            self._times.wanted = order.wanted

    def _look_at_time(self, now: float) -> None:
        if self._times.wanted:
            self._links.look(now)
        if self._times.look(self._trainers(), now):
            self._links_told.append(self._links.taken())

    def _trainers(self) -> Iterator[tuple[int, RankProcess]]:
        assert self._pulses is not None
        for rank in self._ranks:
            yield from trainers(rank, self._pulses.of_rank(rank)).items()

    def _begin(self, attempt: int) -> None:
        assert self._host is not None
        if self._pulses is not None:
            self._pulses.close()
        self._attempt, self._ranks, self._began_at = attempt, {}, unix_s()
        self._times.begin()
        self._pulses = NodePulses(self._host.folder(), attempt)

    def _about(self, asks: bool = False) -> tuple[float, list[dict[str, Any]]]:
        """Return since when there is what is known of the ranks: one document for each process that has a rank.

        Args:
            asks: whether each is asked for its dump, too: what collects it takes a while to start.
        """
        if self._host is not None and not self._wanted:
            pids = self._host.pids()
            return self._began_at, [{"rank": rank, "pid": pid, "pulse": None} for rank, pid in pids.items()]
        if self._host is None or self._pulses is None or self._looked_at is None:
            return self._began_at, []
        steps, found = self._host.steps(), []
        for rank, watched in self._ranks.items():
            stand = watched.motion.stand(self._looked_at)._asdict()
            shared = {**stand, "step": steps.get(rank), "launched_as": rank}
            for own, process in trainers(rank, self._pulses.of_rank(rank)).items():
                age = round(process.beat_age_s(self._looked_at), 1)
                about = {"rank": own, "pid": process.pid, "pulse": process.path, "beat_age_s": age}
                about["asked"] = process.ask_dump() if asks else None
                found.append({**shared, **about, "processor_s": watched.activity.share(process.pid)})
            if not self._pulses.of_rank(rank):
                about = {"pid": watched.root, "pulse": None, "beat_age_s": None}
                found.append({**shared, **about, "processor_s": watched.activity.share(watched.root)})
        return self._began_at, found


def _look(watched: _Watched, processes: list[RankProcess], step: Optional[int], now: float, asked: bool) -> None:
    """Look whether a rank has gone on since the last look, and if not, whether it did anything else.

    Where it was `asked` for its stacks since then, what it did is the answer: dumps are written, signals are handled.
    """
    motion = watched.motion
    moved = [process.look(now) for process in processes]
    marks: dict[Hashable, int] = {kind: mark for process in processes for kind, mark in process.marks()}
    if step is not None:
        marks["step"] = step + 1
    motion.reached(marks, now)
    stand = motion.stand(now)
    motion.why = ""
    if motion.began and stand.stands_s < _LOOK_CLOSER_S:
        watched.activity.forget()
        return
    own = {watched.root, *(process.pid for process in processes)} if processes else set()
    apart = own - {process.pid for process in processes if process.computes(now)}
    if (watched.activity.look(apart, now) or any(moved)) and not asked:
        motion.was_active(now)
    tree = watched.activity.tree
    states = [tree[pid].state for pid in (own or tree) if pid in tree]
    if any(state in _STOPPED for state in states):
        motion.why = "stopped"
    elif any(process.is_silent(now) for process in processes):
        motion.why = "silent"
