"""Answers that were computed once for all who ask the same of the same state of a run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

_MOST_BYTES = 96 << 20


@dataclass(frozen=True)
class CachedBody:
    """An answer's bytes and, where that pays, the same compressed with gzip."""

    data: bytes
    packed: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.data) + len(self.packed or b"")


class Cache:
    """Bodies by tag, those asked for last, at most so many bytes.

    Args:
        most_bytes: of all bodies; a larger one is not kept.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, CachedBody] = OrderedDict()
        self._making: dict[str, Future[CachedBody]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, tag: str, make: Callable[[], CachedBody]) -> CachedBody:
        """Return the body of a tag; where several threads ask at once, one makes it and the others wait for it.

        Raises:
            Exception: whatever `make` raises, in all of them.
        """
        with self._lock:
            known = self._kept.get(tag)
            if known is not None:
                self._kept.move_to_end(tag)
                return known
            others = self._making.get(tag)
            mine = Future[CachedBody]() if others is None else None
            if mine is not None:
                self._making[tag] = mine
        if others is not None:
            return others.result()
        assert mine is not None
        try:
            body = make()
        except BaseException as error:
            with self._lock:
                del self._making[tag]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._making[tag]
            self._keep(tag, body)
        mine.set_result(body)
        return body

    def _keep(self, tag: str, body: CachedBody) -> None:
        if body.size > self._most_bytes // 2:
            return
        self._kept[tag] = body
        self._bytes += body.size
        while self._bytes > self._most_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.size
