"""When ranks are restarted, after what pause, and when repeating is pointless. Pure decisions, no clock and no files."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Any, Optional

from cordee.node.last_words import FROM_OUTSIDE

_LONGEST_PAUSE_S = 60.0
_SECONDARY = re.compile(
    r"connection (closed|reset|refused)|broken pipe|socket timeout|timed out waiting|peer|"
    r"nccl|store.*(failed|closed)|remote process exited|rendezvous",
    re.IGNORECASE,
)
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended before its time: a rank's failure, or `kind` node_lost."""

    kind: str
    rank: Optional[int] = None
    node: Optional[str] = None
    code: Optional[int] = None
    signal: Optional[str] = None
    reason: str = "exited"
    message: Optional[str] = None

    @property
    def exit_code(self) -> int:
        """The code that a shell would report: the rank's own, or 128 and the signal's number."""
        if self.code is not None:
            return self.code
        if self.signal is not None:
            return 128 + int(getattr(signal, self.signal, 0))
        return 1

    def document(self) -> dict[str, Any]:
        """Return what the journal keeps of the failure."""
        return {key: getattr(self, key) for key in ("kind", "rank", "node", "code", "signal", "message")}

    def sentence(self) -> str:
        """Return the failure as a person would say it."""
        if self.kind == "node_lost":
            return f"node {self.node} was lost: {self.message or 'no sign of life'}"
        if self.reason == "not_started":
            return f"rank {self.rank} on {self.node} did not start: {self.message}"
        how = f"was ended by {self.signal}" if self.signal else f"exited with code {self.code}"
        return f"rank {self.rank} on {self.node} {how}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True)
class Decision:
    """What to do after a failure: `restart` after `delay_s`, or end for `reason` with `text`."""

    restart: bool
    delay_s: float
    failures_without_progress: int
    reason: str
    text: str
    crash_loop: bool = False


class RestartPolicy:
    """Counts failures without progress; node loss does not count.

    Args:
        retries: restarts allowed without a new complete checkpoint in between.
        backoff_s: the pause before the second restart in a row; it doubles from there to 60 s. The first is at once.
    """

    def __init__(self, retries: int, backoff_s: float) -> None:
        self._retries = retries
        self._backoff_s = backoff_s
        self._failures = 0
        self._last: Optional[tuple[Optional[int], str]] = None

    def decide(self, failure: Failure, progressed: bool) -> Decision:
        """Return what to do now.

        Args:
            failure: why the attempt ended.
            progressed: whether the attempt left a new complete checkpoint.
        """
        if progressed:
            self._failures, self._last = 0, None
        if failure.kind == "node_lost":
            return Decision(True, 0.0, self._failures, "node_lost", failure.sentence())
        if failure.reason == "not_started":
            return Decision(False, 0.0, self._failures + 1, "not_started", failure.sentence())
        self._failures += 1
        fingerprint = self._fingerprint(failure)
        repeated = fingerprint is not None and fingerprint == self._last
        self._last = fingerprint
        if repeated:
            text = f"the same failure came twice without progress: {failure.sentence()}"
            return Decision(False, 0.0, self._failures, "crash_loop", text, crash_loop=True)
        if self._failures > self._retries:
            attempts = "1 attempt" if self._failures == 1 else f"{self._failures} attempts without progress"
            text = f"failed after {attempts}; no retries left (retries = {self._retries}): {failure.sentence()}"
            return Decision(False, 0.0, self._failures, "retries", text)
        delay = 0.0 if self._failures == 1 else min(_LONGEST_PAUSE_S, self._backoff_s * 2 ** (self._failures - 2))
        return Decision(True, delay, self._failures, "failed", failure.sentence())

    @staticmethod
    def _fingerprint(failure: Failure) -> Optional[tuple[Optional[int], str]]:
        if failure.signal in FROM_OUTSIDE:
            return None
        return failure.rank, f"{failure.code} {failure.signal} {_VARYING.sub('#', failure.message or '')}"


def culprit(failures: list[Failure]) -> Failure:
    """Return the failure that caused the others: the earliest that does not complain about a lost peer."""
    for failure in failures:
        if failure.signal is not None and failure.signal not in ("SIGTERM", "SIGPIPE"):
            return failure
        if failure.signal is None and not _SECONDARY.search(failure.message or ""):
            return failure
    return failures[0]
