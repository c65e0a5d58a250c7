"""How long a store is waited for, and how a request is tried again."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cordee.core.errors import DataError, UsageError
from cordee.core.units import format_duration, parse_duration

VARIABLE = "CORDEE_STORE_TIMEOUT"
_T = TypeVar("_T")


class Passing(Exception):
    """A request failed in a way that may be over soon; its text is fit for people."""


@dataclass(frozen=True)
class Patience:
    """Limits of one request of at most some MiB; times in seconds.

    Attributes:
        total_s: after this long a request is given up, with all its tries.
        tries: the most often it is tried.
        connect_s: for a connection to be made.
        stall_s: without a single byte.
        pause_s: before the second try; doubles from try to try, up to 5 s, and is drawn at random below that.
    """

    total_s: float = 120.0
    tries: int = 6
    connect_s: float = 10.0
    stall_s: float = 30.0
    pause_s: float = 0.25

    @staticmethod
    def from_environment() -> Patience:
        """Return the usual limits, or those that CORDEE_STORE_TIMEOUT (a duration) sets for a request with all its tries.

        Raises:
            UsageError: the variable holds no duration.
        """
        text = os.environ.get(VARIABLE)
        if not text:
            return Patience()
        try:
            total_s = parse_duration(text)
        except ValueError as error:
            raise UsageError(f"invalid {VARIABLE}", given=text, allowed=str(error))
        return Patience(total_s=total_s, connect_s=min(10.0, total_s), stall_s=min(30.0, total_s / 2))

    def ask(self, request: str, attempt: Callable[[], _T]) -> _T:
        """Return what `attempt` returns, trying again after `Passing` until the limits are reached.

        Args:
            request: what is asked of which object, for the message.

        Raises:
            DataError: the limits were reached.
        """
        begin, pause_s = time.monotonic(), self.pause_s
        for tried in range(1, self.tries + 1):
            try:
                return attempt()
            except Passing as error:
                last = str(error)
            passed_s = time.monotonic() - begin
            wait_s = random.uniform(pause_s / 2, pause_s)
            if tried == self.tries or passed_s + wait_s > self.total_s:
                raise gave_up(request, last, tried, passed_s)
            time.sleep(wait_s)
            pause_s = min(2 * pause_s, 5.0)
        raise AssertionError("at least one try is made")


class SilentStore(DataError):
    """A store served nothing for as long as is allowed."""


def gave_up(request: str, last: str, tried: int, passed_s: float) -> SilentStore:
    """Return the error of a request that was tried as often and as long as is allowed."""
    times = "once" if tried == 1 else f"{tried} times"
    return SilentStore(
        f"the store did not serve a request that was tried {times} in {format_duration(passed_s)}: {last}",
        given=request,
        next=f"run the same command again, it continues where it stopped; {VARIABLE} (such as 10min) waits longer",
    )
