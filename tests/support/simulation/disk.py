"""The file system that the machines of a simulation share: it refuses, says so late, or stands still, in virtual time."""

from __future__ import annotations

import errno
import os
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from typing import Any, TypeVar

from cordee.runs.disk import Place
from cordee.runs.lane import Inline
from support.disks import CALLS, DiskFault, FaultyDisk
from support.simulation.loop import VirtualLoop, VirtualProcess

T = TypeVar("T")
_CHANGING = ("open", "write", "truncate", "mkdir", "replace", "unlink", "touch")
_CALL_S = 0.005
# What each trouble is: the calls that it meets, and what these say. A write-back that is refused loses what was written.
TROUBLES: dict[str, tuple[tuple[str, ...], int]] = {
    "disk_eio": (CALLS, errno.EIO),
    "disk_stale": (CALLS, errno.ESTALE),
    "disk_quota": (("fsync", "close"), errno.EDQUOT),
    "disk_full": (("open", "write", "mkdir"), errno.ENOSPC),
    "disk_readonly": (_CHANGING, errno.EROFS),
    "disk_still": ((), 0),
}


class SimulatedDisk(FaultyDisk):
    """Real files with the troubles that are there now.

    Args:
        loop: of the simulation.
        chance: for how long things take.
        on_loop: called with a call's name that was made on an event loop while it could have waited for minutes.

    Attributes:
        slow_s: the most that a piece of work takes.
        troubles: that are there now, each as often as it was begun.
        lost: whether a refused write-back has lost what was written.
    """

    def __init__(self, loop: VirtualLoop, chance: random.Random, on_loop: Callable[[str], None]) -> None:
        super().__init__()
        self._loop, self.chance, self._on_loop = loop, chance, on_loop
        self.slow_s = 0.002
        self.troubles: list[str] = []
        self.lost = False
        self.working = False
        self._waiting: list[tuple[Callable[[], None], Context]] = []

    def close_all(self) -> None:
        """Close what killed processes left open."""
        for descriptor in self._paths:
            os.close(descriptor)
        self._paths.clear()

    @property
    def still(self) -> bool:
        """Whether nothing answers."""
        return "disk_still" in self.troubles

    def begin(self, trouble: str) -> None:
        """Begin one of TROUBLES."""
        self.troubles.append(trouble)

    def end(self, trouble: str) -> None:
        """End it; who waited for the disk goes on."""
        self.troubles.remove(trouble)
        if not self.still:
            waiting, self._waiting = self._waiting, []
            for callback, context in waiting:
                self._loop.call_soon(callback, context=context)

    def when_it_answers(self, callback: Callable[[], None]) -> None:
        """Call back in the process that runs now: at once, or when the disk does not stand still any more."""
        if self.still:
            self._waiting.append((callback, copy_context()))
        else:
            callback()

    async def answers(self) -> None:
        """Return when the disk answers."""
        answer = self._loop.create_future()
        self.when_it_answers(lambda: None if answer.done() else answer.set_result(None))
        await answer

    def lose_power(self, part: str) -> None:
        """The machine that wrote is gone: files whose path has `part` in it keep what was durable."""
        for path, size in self._durable.items():
            if part in path and os.path.exists(path) and os.path.getsize(path) > size:
                os.truncate(path, size)

    def open(self, path: Place, flags: int, below: Place | None = None) -> int:
        new = not os.path.exists(path)
        descriptor = super().open(path, flags, below)
        if new:
            self._durable[str(path)] = 0
        return descriptor

    def _meet(self, call: str, path: object) -> DiskFault | None:
        self.calls[call] += 1
        here = VirtualProcess.here()
        if here is not None and here.waits_for_disks:
            here.sleep(self.chance.uniform(0.0, _CALL_S))
        elif here is not None and here.starting:
            while self.still:
                here.sleep(_CALL_S)
        elif self.still and not self.working:
            self._on_loop(f"{call} {path}")
        for trouble in self.troubles:
            calls, number = TROUBLES[trouble]
            if call not in calls or (trouble == "disk_full" and call == "open" and os.path.exists(str(path))):
                continue
            self.met[call] += 1
            lose = call in ("fsync", "close") and self.chance.random() < 0.5
            self.lost = self.lost or lose
            return DiskFault(call, number, lose=lose, part=self.chance.choice((0, 7)))
        return None


class VirtualLane(Inline):
    """A thread that works for one process: each piece takes some virtual time, or for as long as the disk stands still.

    Args:
        disk: that the work is done on.
    """

    def __init__(self, disk: SimulatedDisk, loop: VirtualLoop) -> None:
        self._disk, self._loop = disk, loop
        self._queue: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._since: float | None = None
        here = VirtualProcess.here()
        assert here is not None
        self._context = here.context

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """See `Inline.submit`."""
        future: Future[T] = Future()
        self._queue.append((work, future))
        if self._since is None:
            self._begin()
        return future

    @property
    def busy_s(self) -> float:
        """See `Inline.busy_s`."""
        return 0.0 if self._since is None else self._loop.now - self._since

    def _begin(self) -> None:
        self._since = self._loop.now
        self._later(lambda: self._disk.when_it_answers(self._work))

    def _later(self, callback: Callable[[], Any]) -> None:
        self._loop.call_later(self._disk.chance.uniform(0.0, self._disk.slow_s / 2), callback, context=self._context)

    def _work(self) -> None:
        work, future = self._queue.popleft()
        answer: tuple[Any, BaseException | None] = (None, None)
        self._disk.working = True
        try:
            answer = (work(), None)
        except Exception as error:
            answer = (None, error)
        finally:
            self._disk.working = False
        self._later(lambda: self._tell(future, *answer))

    def _tell(self, future: Future[Any], result: Any, error: BaseException | None) -> None:
        self._since = None
        if self._queue:
            self._begin()
        if not future.set_running_or_notify_cancel():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
