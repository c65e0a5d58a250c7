"""Where an attempt begins: this run's own newest checkpoint, else one that the run was told to begin from, else zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from cordee.control.supervisor.decisions.outcomes import Ended
from cordee.core.errors import EXIT_BAD
from cordee.core.findings import Finding
from cordee.runs.checkpoint import Checkpoint, CheckpointFinder, Doubt
from cordee.runs.journal import JournalWriter
from cordee.runs.state import RunState

_MOST_SAID = 5


@dataclass(frozen=True)
class Beginning:
    """Where an attempt begins.

    Attributes:
        own: this run's own newest complete checkpoint.
        other: without an own one, that of another run which it was told to begin from.
        run: the run that made `other`, None where that is not known.
    """

    own: Optional[Checkpoint] = None
    other: Optional[Checkpoint] = None
    run: Optional[str] = None

    @property
    def checkpoint(self) -> Optional[Checkpoint]:
        """What the attempt begins from, None at zero."""
        return self.own or self.other

    @property
    def path(self) -> Optional[str]:
        """Its path."""
        return self.checkpoint.path if self.checkpoint else None


class Beginnings:
    """Decides where each attempt begins, and says what was passed over.

    Args:
        checkpoints: the run's.
        journal: where findings are written.
        before: the run's state; what was found before is not said again.
    """

    def __init__(self, checkpoints: CheckpointFinder, journal: JournalWriter, before: RunState) -> None:
        self._checkpoints, self._journal = checkpoints, journal
        self._said = {finding.text for finding in before.findings}

    def next(self, doubts: Sequence[Doubt] = ()) -> Beginning:
        """Return where the next attempt begins.

        Args:
            doubts: checkpoints with which it is not to begin where there are older ones, the oldest doubt first.

        Raises:
            Ended: it cannot begin where it was told to, or the script would go on from another run's checkpoint.
        """
        self._checkpoints.forget()
        problems: list[str] = []
        own = self._newest(doubts, problems)
        for problem in problems[:_MOST_SAID]:
            then = f"the next attempt begins with {own.name if own else 'none of this run'}"
            self._say(f"{problem}; {then}", "checkpoint-damaged", "look at the file system, or at how the script saves")
        last = doubts[-1] if doubts and doubts[-1].open else None
        if last is not None and own is not None and last.checkpoint.is_beyond(own):
            text = f"{last.checkpoint.name} is passed over: {last.why}; the next attempt begins with {own.name}"
            what = "the same failure once more ends the run; what is passed over stays where it is"
            self._say(text, "checkpoint-passed-over", what)
        for name in self._checkpoints.disputed()[-_MOST_SAID:]:
            text = f"{name} is not used: another run trained with the same checkpoint folder when it was saved"
            self._say(text, "checkpoint-owner-unknown", "leave out [checkpoint] path, or give each run its own")
        if self._checkpoints.finds_its_own:
            self._refuse_foreign()
        if own is not None or not self._checkpoints.must_begin:
            return Beginning(own)
        return self._told()

    def trains(self) -> None:
        """Say that ranks are about to start."""
        problem = self._checkpoints.begin_training()
        if problem:
            text = f"other runs cannot see which checkpoints are this run's: {problem}"
            self._say(text, "checkpoint-owner-unknown", "leave out [checkpoint] path, or give each run its own")

    def _newest(self, doubts: Sequence[Doubt], problems: list[str]) -> Optional[Checkpoint]:
        """Return this run's newest checkpoint without a doubt; where all are doubted, the one that was doubted last."""
        doubted = [doubt.checkpoint for doubt in doubts]
        while True:
            problems.clear()
            self._checkpoints.pass_over(doubted)
            own = self._checkpoints.newest(problems)
            if own is not None or not doubted:
                return own
            doubted.pop()

    def _told(self) -> Beginning:
        problems: list[str] = []
        found = self._checkpoints.beginning(problems)
        if found is None:
            text = f"the checkpoint that this run was to begin from cannot be used: {'; '.join(problems[:_MOST_SAID])}"
            raise Ended("failed", EXIT_BAD, "no_beginning", text)
        for problem in problems[:_MOST_SAID]:
            text = f"{problem}; the run begins from {found[0].path}"
            self._say(text, "checkpoint-damaged", "see what wrote or removed it")
        return Beginning(None, *found)

    def _refuse_foreign(self) -> None:
        """End the run where the script, which looks for its checkpoint by itself, would find another run's."""
        foreign = self._checkpoints.foreign()
        if foreign:
            path, run = foreign[-1]
            text = (
                f"the script would continue from {path}, which {f'run {run}' if run else 'not this run'} made; "
                'with resume = "self" this cannot be prevented: leave out [checkpoint] path, or give each run its own'
            )
            raise Ended("failed", EXIT_BAD, "foreign_checkpoints", text)

    def _say(self, text: str, rule: str, what: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._journal.append("finding", finding=Finding(text, "warn", rule, next=what).document())
