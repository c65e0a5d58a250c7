"""How a run, a segment of it, or an attempt is over."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from cordee.control.supervisor.decisions.restart import Failure

_WORDS = {
    "time_limit": "the time limit of the job is near",
    "preempted": "another job preempted this one",
    "requeued": "the job was requeued",
    "node_lost": "too few nodes are left",
    "no_agents": "too few agents connected",
    "killed": "the batch script was killed",
    "lost": "the allocation ended without a word",
}


class Ended(Exception):
    """The run is over: how, with which exit code, and why."""

    def __init__(self, state: str, exit_code: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.state, self.exit_code, self.reason, self.text = state, exit_code, reason, text

    def document(self) -> dict[str, Any]:
        """Return it as the journal has it; `Ended(**document)` is the same."""
        return {"state": self.state, "exit_code": self.exit_code, "reason": self.reason, "text": self.text}


class SegmentOver(Exception):
    """The allocation ends before the run.

    Args:
        reason: a key of the table above.
        text: the same as a sentence; the table's when left out.
        exit_code: of the run, when it cannot go on in another allocation.
    """

    def __init__(self, reason: str, text: str = "", exit_code: int = 1) -> None:
        super().__init__(text or _WORDS[reason])
        self.reason, self.text, self.exit_code = reason, text or _WORDS[reason], exit_code


class AttemptOutcome(NamedTuple):
    """How an attempt ended: `kind` is finished, failed, node_lost, or what it was asked to end as: cancelled, segment."""

    kind: str
    failure: Optional[Failure] = None
    reason: str = ""
