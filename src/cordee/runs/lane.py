"""Work on a file system, one piece after the other, beside the event loop: a disk that stands still holds up nobody else.

A lane is where blocking calls go. `Lane` does them in a thread of its own; `Inline` at once, for those without a loop; a
simulator has its own, which takes as long as it wants in virtual time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from typing import TYPE_CHECKING, Any, Callable, Deque, Optional, TypeVar

if TYPE_CHECKING:  # it is slow to import, and commands that only read have no loop
    import asyncio

T = TypeVar("T")
_MOST_SAID_BYTES = 1 << 20


class Inline:
    """Does work at once, in the thread that brings it."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have work done after what was brought before; returns its future, which holds what it returned or raised."""
        future: Future[T] = Future()
        _do(work, future)
        return future

    async def run(self, work: Callable[[], T]) -> T:
        """Have work done and return what it returns; the event loop goes on meanwhile.

        Raises:
            Exception: what the work raises.
        """
        import asyncio

        return await asyncio.wrap_future(self.submit(work))

    @property
    def busy_s(self) -> float:
        """For how many seconds the work at hand has been going on; 0 without any."""
        return 0.0


class Lane(Inline):
    """Does work in a daemon thread, in order; one that hangs in the kernel holds no process back from its end.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._work: Deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._there = threading.Condition()
        self._since: Optional[float] = None
        self._name = name
        self._thread: Optional[threading.Thread] = None

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """See `Inline.submit`; from any thread."""
        future: Future[T] = Future()
        with self._there:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
            self._work.append((work, future))
            self._there.notify()
        return future

    @property
    def busy_s(self) -> float:
        """See `Inline.busy_s`."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def _serve(self) -> None:
        while True:
            with self._there:
                while not self._work:
                    self._there.wait()
                work, future = self._work.popleft()
            self._since = time.monotonic()
            _do(work, future)
            self._since = None
            del work, future


class RepeatedLook:
    """A look at the disk that is repeated: never two at once, and what was seen is told on the event loop.

    Args:
        lane: where it is done.
        look: the work; what it raises goes to `failed`.
        told: called with what it returned.
        failed: called with what it raised.
    """

    def __init__(
        self,
        lane: Inline,
        look: Callable[[], T],
        told: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._lane, self._look, self._told, self._failed = lane, look, told, failed
        self._under_way: Optional[asyncio.Future[Any]] = None

    def begin(self) -> None:
        """Look, unless the last look has not come back."""
        import asyncio

        if self._under_way is None:
            self._under_way = asyncio.wrap_future(self._lane.submit(self._look))
            self._under_way.add_done_callback(self._done)

    def _done(self, seen: asyncio.Future[Any]) -> None:
        self._under_way = None
        if seen.cancelled():
            return
        error = seen.exception()
        try:
            if error is None:
                self._told(seen.result())
            else:
                self._failed(error)
        except Exception as also:
            self._failed(also)


def _do(work: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # it belongs to who waits for it
        future.set_exception(error)


class Aside:
    """A text stream whose writing is done in a lane, for standard error that is a file of the run: who complains must not wait.

    Args:
        stream: what it writes to.
        lane: where.
    """

    encoding = "utf-8"

    def __init__(self, stream: Any, lane: Inline) -> None:
        self._stream, self._lane = stream, lane
        self._waiting_bytes = 0

    def write(self, text: str) -> int:
        """Have a text written; beyond 1 MiB that waits for a disk it is left out."""
        if self._waiting_bytes < _MOST_SAID_BYTES:
            self._waiting_bytes += len(text)
            self._lane.submit(lambda: self._write(text))
        return len(text)

    def flush(self) -> None:
        """Do nothing: each text is written as soon as the disk takes it."""

    def drain(self, most_s: float) -> None:
        """Wait until all is written, at most so long."""
        try:
            self._lane.submit(lambda: None).result(most_s)
        except Late:
            return

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass
        self._waiting_bytes -= len(text)
