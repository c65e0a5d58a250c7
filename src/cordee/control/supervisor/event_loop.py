"""The supervisor's event loop: however many of its connections have something at one moment, a pass of it is short.

asyncio reads every connection that has something before anything else has its turn. Where the ranks of 10,000 nodes fail at
once that takes a second, in which no lease is renewed and no sign of life is given. Here a pass reads some of them.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from typing import Any, Coroutine, Deque, List, Optional, Tuple, TypeVar

# A message with the ends of ten ranks takes 0.2 ms.
_AT_ONCE = 64
Ready = Tuple[selectors.SelectorKey, int]
Result = TypeVar("Result")


class PartingSelector(selectors.DefaultSelector):
    """Tells of a few files that are ready at a time; of the others the next times, before it looks for more."""

    def __init__(self) -> None:
        super().__init__()
        self._untold: Deque[Ready] = deque()

    def select(self, timeout: Optional[float] = None) -> List[Ready]:
        """Return some of the files that are ready, or were when it last looked and are waited for as they were then."""
        if not self._untold:
            self._untold.extend(super().select(timeout))
        awaited = self.get_map()
        told: List[Ready] = []
        while self._untold and len(told) < _AT_ONCE:
            key, events = self._untold.popleft()
            if awaited.get(key.fd) is key:
                told.append((key, events))
        return told


def run_passes(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, as `asyncio.run` does, in short passes."""
    loop = asyncio.SelectorEventLoop(PartingSelector())
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
