"""When ranks are restarted, after what pause, and when repeating is pointless. Pure decisions, no clock and no files."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

from cordee.machine.tasks.last_words import FROM_OUTSIDE
from cordee.runs.checkpoint import Checkpoint, Doubt
from cordee.wire.messages import EndedRank

_LONGEST_PAUSE_S = 60.0
# With one loss in three hours (16,000 GPUs) and a checkpoint in each half an hour, ten losses in a row without one between
# happen by chance once in a hundred million times: the job takes its nodes down, or saves nothing.
MOST_LOSSES = 10
_SECONDARY = re.compile(
    r"connection (closed|reset|refused)|broken pipe|socket timeout|timed out waiting|peer|"
    r"nccl|store.*(failed|closed)|remote process exited|rendezvous",
    re.IGNORECASE,
)
# What `cordee.load` says of a file that it refuses: it would be refused again.
_REFUSED = re.compile(r"(\w+\.)*RefusedFile: .+ is not loaded: ")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended before its time: a rank's failure, or `kind` node_lost, hang or egress (of `reason` end: the run is over)."""

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
        if self.reason == "end" or self.kind == "hang":
            return self.message or "no rank went on"
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


class RestartCounter:
    """Counts failures without progress. Node losses count apart: they use up no retries, and ten in a row end the run.

    Args:
        retries: restarts allowed without a new complete checkpoint in between.
        backoff_s: the pause before the second restart in a row; it doubles from there to 60 s. The first is at once.
        forget_s: an attempt that lasted so long has made progress, whatever it saved; None: only what it saved counts.
    """

    def __init__(self, retries: int, backoff_s: float, forget_s: Optional[float] = None) -> None:
        self._retries = retries
        self._backoff_s, self._forget_s = backoff_s, forget_s
        self._failures = self._losses = 0
        self._last: Optional[tuple[Optional[int], str]] = None

    def decide(self, failure: Failure, progressed: bool, lasted_s: float = 0.0) -> Decision:
        """Return what to do now.

        Args:
            failure: why the attempt ended.
            progressed: whether the attempt left a new complete checkpoint.
            lasted_s: how long it took.
        """
        if progressed or (self._forget_s is not None and lasted_s >= self._forget_s):
            self._failures, self._losses, self._last = 0, 0, None
        if failure.kind == "node_lost":
            return self._after_loss(failure)
        self._losses = 0
        if failure.reason == "not_started":
            return Decision(False, 0.0, self._failures + 1, "not_started", failure.sentence())
        self._failures += 1
        if failure.reason == "end":
            return Decision(False, 0.0, self._failures, failure.kind, failure.sentence())
        if _REFUSED.match(failure.message or ""):
            return Decision(False, 0.0, self._failures, "refused_file", failure.sentence())
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
        return Decision(True, self._pause(self._failures), self._failures, "failed", failure.sentence())

    def _after_loss(self, failure: Failure) -> Decision:
        self._losses += 1
        if self._losses < MOST_LOSSES:
            return Decision(True, self._pause(self._losses), self._failures, "node_lost", failure.sentence())
        text = f"nodes were lost {self._losses} times in a row without a new checkpoint; the last: {failure.sentence()}"
        return Decision(False, 0.0, self._failures, "node_losses", text)

    def _pause(self, times: int) -> float:
        return 0.0 if times == 1 else min(_LONGEST_PAUSE_S, self._backoff_s * 2 ** (times - 2))

    @staticmethod
    def _fingerprint(failure: Failure) -> Optional[tuple[Optional[int], str]]:
        """Return what two failures of one cause have in common, whichever rank says it; None where that cannot be told.

        Without a message, or with the complaint of a victim, only the same rank's is taken for the same failure.
        """
        if failure.signal in FROM_OUTSIDE:
            return None
        told = failure.message and not complains_of_peer(failure)
        how = f"{failure.code} {failure.signal} {_VARYING.sub('#', failure.message or '')}"
        return None if told else failure.rank, how


class CheckpointDoubts:
    """Which checkpoints attempts do not begin with: a whole one that cannot be loaded would fail each of them.

    One that an attempt began with and failed, before it told a step or saved, is doubted, and the next attempt begins with
    the one before it. That is one step back: only once an attempt has got on from there, another one can be doubted. Where
    the same failure comes from there, too, the checkpoint is not its cause and is doubted no more.

    Attributes:
        known: the oldest doubt first.
    """

    def __init__(self, known: Sequence[Doubt] = ()) -> None:
        self.known = tuple(known)

    def decide(
        self, decision: Decision, failure: Failure, got_on: bool, began_with: Optional[Checkpoint], attempt: str
    ) -> bool:
        """Take the end of an attempt, and return whether `known` has changed.

        Args:
            decision: what follows its failure.
            got_on: whether it told a step or left a new checkpoint.
            began_with: this run's own checkpoint with which it began.
            attempt: what people call it.
        """
        before, last = self.known, self.known[-1] if self.known and self.known[-1].open else None
        if last is not None and (decision.crash_loop or (got_on and began_with == last.checkpoint)):
            self.known = before[:-1]
        elif last is not None and got_on:
            self.known = (*before[:-1], replace(last, open=False))
        elif last is None and began_with is not None and not got_on and decision.restart and _is_of_script(failure):
            why = f"{attempt} began with it and failed before it told a step: {failure.sentence()}"
            self.known = (*before, Doubt(began_with, why))
        return self.known != before


def _is_of_script(failure: Failure) -> bool:
    """Return whether a failure may come from what the script has read, and not from its surroundings."""
    outside = failure.kind == "node_lost" or failure.signal in FROM_OUTSIDE
    return not outside and not complains_of_peer(failure)


class Blame:
    """Which of the ranks that fail causes that the others do: the earliest that does not complain about a lost peer, else the first.

    Attributes:
        culprit: its failure; None while none has failed.
        victims_only: whether all of them complain.
    """

    def __init__(self) -> None:
        self.culprit: Optional[Failure] = None
        self.victims_only = True

    def take(self, ended: EndedRank, node: str) -> None:
        """A rank has failed."""
        if not self.victims_only:
            return
        complains = complains_of_peer(ended)
        if self.culprit is None or not complains:
            self.victims_only = complains
            self.culprit = Failure("rank", ended.rank, node, ended.code, ended.signal, ended.reason, ended.message)


def complains_of_peer(failure: Union[Failure, EndedRank]) -> bool:
    """Return whether a rank ended as one does that has lost another, and so is not the cause."""
    if failure.signal in (None, "SIGABRT"):
        return _SECONDARY.search(failure.message or "") is not None
    return failure.signal in ("SIGTERM", "SIGPIPE")
