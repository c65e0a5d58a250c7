"""Requests to storage by a few threads: those that somebody waits for go before those made early."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Callable, Optional

from cordee.systems.data.node.read.counters import ReadCounts

ReadStretch = Callable[[int, int, int], bytes]
_Waiting = tuple["Future[bytes]", int, int, int]


class Threads:
    """Reads stretches of shards in daemon threads, which are started at the first request.

    Args:
        read: called with (shard, offset, length) by several threads at once.
        counts: every request is counted there; `busy_s` grows while at least one is under way.
        most: threads.
    """

    def __init__(self, read: ReadStretch, counts: ReadCounts, most: int) -> None:
        self._read = read
        self._counts = counts
        self._most = most
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = self._under_way = 0
        self._since = 0.0
        self._closed = False

    def ask(self, shard: int, offset: int, length: int, urgent: bool = False) -> "Future[bytes]":
        """Return at once what will hold the bytes, or the error."""
        answer: Future[bytes] = Future()
        with self._changed:
            (self._waiting.appendleft if urgent else self._waiting.append)((answer, shard, offset, length))
            if not self._idle and len(self._threads) < self._most and not self._closed:
                thread = threading.Thread(target=self._work, name="cordee-read", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()
        return answer

    def close(self) -> None:
        """End the threads; what was not begun is not read. A thread that storage holds is not waited for."""
        with self._changed:
            self._closed = True
            while self._waiting:
                self._waiting.popleft()[0].cancel()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            task = self._next()
            if task is None:
                return
            self._serve(*task)
            del task  # what was read is not kept until the next request

    def _serve(self, answer: "Future[bytes]", shard: int, offset: int, length: int) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        self._begun()
        try:
            data = self._read(shard, offset, length)
        except BaseException as error:  # whoever waits for the answer is told
            self._ended(length)
            answer.set_exception(error)
        else:
            self._ended(length)
            answer.set_result(data)

    def _next(self) -> Optional[_Waiting]:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._closed or self._waiting)
            self._idle -= 1
            return None if self._closed else self._waiting.popleft()

    def _begun(self) -> None:
        with self._changed:
            if not self._under_way:
                self._since = time.perf_counter()
            self._under_way += 1

    def _ended(self, length: int) -> None:
        with self._changed:
            self._under_way -= 1
            self._counts.request(length, 0.0 if self._under_way else time.perf_counter() - self._since)
