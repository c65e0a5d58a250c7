"""Passes of a supervisor's loop: each takes in so many connections and no more, so that a burst of thousands holds up no timer."""

from __future__ import annotations

import asyncio
import math
import os
import select
import selectors
from typing import Any, Coroutine, List, Optional, Tuple, TypeVar

T = TypeVar("T")
CONNECTIONS_A_PASS = 100


class SlicedSelector(selectors.EpollSelector):
    """Tells of a part of what is ready at a time: whoever is not told of now comes before those that were.

    Args:
        most: of how many files it tells at once.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._ready = select.epoll.fromfd(os.dup(self.fileno()))

    def select(self, timeout: Optional[float] = None) -> List[Tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector.select`."""
        keys = self.get_map()
        wait_s = (
            None if timeout is None else max(0.0, math.ceil(timeout * 1e3) * 1e-3)
        )  # as epoll counts, and never too short
        try:
            found = self._ready.poll(wait_s, self._most)
        except InterruptedError:
            return []
        return [(keys[file], _asked(event) & keys[file].events) for file, event in found if file in keys]

    def close(self) -> None:
        """See `selectors.BaseSelector.close`."""
        self._ready.close()
        super().close()


def _asked(event: int) -> int:
    """Return what epoll says in the words of selectors: an error or the end of a connection is told to readers and writers."""
    told = selectors.EVENT_READ if event & ~select.EPOLLOUT else 0
    return told | (selectors.EVENT_WRITE if event & ~select.EPOLLIN else 0)


def run_in_slices(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, on a loop whose passes are bounded."""
    loop = asyncio.SelectorEventLoop(SlicedSelector(CONNECTIONS_A_PASS))
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
