"""Beside the lead of a run: has ranks profiled when somebody asks, and says in RUN/profiles/N/profile.json how far that is."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Optional

from cordee.control.supervisor.decisions.attempt import Attempt
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.watchers import RunWatcher, WatchedRun
from cordee.core.clock import monotonic, unix_s
from cordee.runs.folder import say
from cordee.systems.explain.node.profile.files import ProfileFiles
from cordee.wire.messages import Gathered, ProfileRanks

_MORE_S = 5.0
# Until every rank has seen the order, which it looks for once a second.
_TOGETHER_S = 2.5
_MOST_WAITING_BYTES = 64 << 20
_MOST_RANKS, _MOST_PROFILES, _MOST_NOTES = 64, 1000, 100


class _Profiling:
    """One request, from its arrival until all has been told."""

    def __init__(
        self, number: int, request: dict[str, Any], files: ProfileFiles, attempt: Optional[Attempt], now: float
    ) -> None:
        self.id = f"profile-{number}"
        self.request, self.files, self.attempt, self.asked_at = request, files, attempt, unix_s()
        self.ranks = sorted({int(rank) for rank in request["ranks"]})
        self.until = now + float(request["wait_s"]) + _MORE_S
        self.open = {node.name for node in attempt.nodes} if attempt is not None else set()
        self.states: dict[int, dict[str, Any]] = {}
        self.notes: list[str] = []
        self.error = ""
        self.over, self.changed, self.waiting_bytes = False, False, 0

    def order(self, attempt: Attempt) -> ProfileRanks:
        """Return what is ordered of agents."""
        told, wait_s = self.request, float(self.request["wait_s"])
        begin_at = self.asked_at + (_TOGETHER_S if len(self.ranks) > 1 else 0.0)
        how = (str(told["tool"]), begin_at, int(told["steps"]), float(told["seconds"]), int(told["extras"]))
        return ProfileRanks(self.id, attempt.number, wait_s, tuple(self.ranks), *how)

    def document(self, over: bool) -> dict[str, Any]:
        """Return profile.json; made in the lane, once all that was told before is written.

        Args:
            over: whether all had been told when this was brought to the lane: only then a file that is not there is missing.
        """
        ranks = {rank: dict(self.states.get(rank, {"rank": rank, "state": "waiting"})) for rank in self.ranks}
        for rank, about in ranks.items():
            if rank in self.files.refused:
                about.update(state="failed", text=self.files.refused[rank])
            elif rank in self.files.written:
                name, size = self.files.written[rank]
                about.update(state="written", file=name, bytes=size)
            elif over and about["state"] != "failed":
                about.update(state="failed", text=self.error or self._why_missing(rank))
        return {
            "schema": "cordee.profile/1",
            "number": self.files.number,
            **{key: self.request[key] for key in ("id", "tool", "steps", "seconds")},
            "attempt": self.attempt.number if self.attempt is not None else 0,
            "asked_at": self.asked_at,
            "over": over,
            "error": self.error,
            "ranks": list(ranks.values()),
            "notes": self.notes,
        }

    def _why_missing(self, rank: int) -> str:
        if self.open:
            return f"not all nodes have answered: {', '.join(sorted(self.open)[:8])}"
        if rank in self.states:
            return "its node has told no file"
        world = len(self.attempt.nodes) * self.attempt.ranks_per_node if self.attempt is not None else 0
        if rank < world:
            return "no process of it runs, or it has not imported torch yet"
        return f"the run has no such rank: it was started with ranks 0 to {world - 1}"


class ProfileWatch(RunWatcher):
    """See RunWatcher. One profile at a time."""

    def __init__(self, run: WatchedRun) -> None:
        super().__init__(run)
        self._lane = run.lane("cordee-profiles")
        self._now: Optional[_Profiling] = None
        self._count = 0

    def requested(self, request: dict[str, Any]) -> None:
        if request.get("request") != "profile" or self._count >= _MOST_PROFILES:
            return
        self._count += 1
        attempt, files = self.run.attempt(), ProfileFiles(self.run.folder)
        asked = _Profiling(self._count, request, files, attempt, monotonic())
        self._do(files.begin)
        if self._now is not None:
            asked.error = f"profile {self._now.files.number} is being made: wait until it is over"
        elif attempt is None:
            asked.error = "no ranks run yet"
        elif len(asked.ranks) > _MOST_RANKS:
            asked.error = f"{len(asked.ranks)} ranks are asked for, and at most {_MOST_RANKS} are profiled at once"
        if asked.error or attempt is None:
            self._finish(asked)
            return
        order = asked.order(attempt)
        self._now = asked
        for node in attempt.nodes:
            if not self.run.order(node, order):
                asked.open.discard(node.name)
                asked.notes.append(f"{node.name}: its agent is gone")
        self._write(asked)
        self._look(asked)

    def gathered(self, node: Node, message: Gathered, body: bytes) -> None:
        asked = self._now
        if asked is None or message.id != asked.id or node.name not in asked.open:
            return
        if not message.name:
            asked.open.discard(node.name)
            if message.text and len(asked.notes) < _MOST_NOTES:
                asked.notes.append(f"{node.name}: {message.text[:500]}")
            self._look(asked)
        elif message.name.startswith("state-"):
            told = _object(body)
            if told.get("rank") in asked.ranks and told.get("state") in ("waiting", "tracing", "ready", "failed"):
                asked.states[told["rank"]] = told
                asked.changed = True
        elif asked.waiting_bytes + len(body) > _MOST_WAITING_BYTES:
            self._do(lambda: asked.files.drop(message.name, "the disk of the run's folder is too slow"))
        else:
            asked.waiting_bytes += len(body)
            self._do(lambda: asked.files.take(message.name, body, message.last), partial(_arrived, asked, len(body)))

    def second(self, now: float) -> None:
        asked = self._now
        if asked is None:
            return
        attempt = self.run.attempt()
        if attempt is not asked.attempt and now + _MORE_S < asked.until:
            asked.until = now + _MORE_S
            asked.notes.append("the ranks have ended, and others run now")
        if now > asked.until:
            self._finish(asked)
        elif asked.changed:
            self._write(asked)

    def close(self) -> None:
        if self._now is not None:
            self._now.error = "the run has ended"
            self._finish(self._now)

    def _look(self, asked: _Profiling) -> None:
        if not asked.open and not asked.over:
            self._finish(asked)

    def _finish(self, asked: _Profiling) -> None:
        asked.over = True
        self._write(asked)
        if self._now is asked:
            self._now = None

    def _write(self, asked: _Profiling) -> None:
        asked.changed, over = False, asked.over
        self._do(lambda: asked.files.describe(asked.document(over)))

    def _do(self, work: Callable[[], None], then: Callable[[], None] = lambda: None) -> None:
        """Have something done in the lane, and then something else in the loop."""
        loop = asyncio.get_running_loop()

        def done(future: Future[None]) -> None:
            error = future.exception()
            if error is not None:
                say(f"cordee supervisor: a profile cannot be written: {error!r}")
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(then)

        self._lane.submit(work).add_done_callback(done)


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _arrived(asked: _Profiling, count: int) -> None:
    asked.waiting_bytes -= count
