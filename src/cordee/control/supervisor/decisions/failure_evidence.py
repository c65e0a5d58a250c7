"""When enough was heard after the first failure of a rank to say what it was. Pure."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.vocabulary import OrderEach
from cordee.wire import messages

_SETTLE_S = 0.2
_HEAR_S = 0.1
# Ranks that end between two looks.
_MANY = 500


class Settled(NamedTuple):
    """When to look again, None: enough was heard; and what nodes are asked until then."""

    again: Optional[float]
    asked: list[OrderEach]


class FailureEvidence:
    """What is heard in the moments after the first failure of an attempt.

    Where all that failed complain of a lost peer, the nodes whose ranks run must answer first, for what they said earlier
    may come late: one may be lost, and that is no failure of the run. While the ranks of thousands of nodes end, none is
    asked: what they have said already is read first.

    Args:
        mark: of the question whether they live.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._due: Optional[float] = None
        self._left = 0
        self._probed: set[str] = set()
        self._doubted = False

    def look(self, now: float, left: int, victims_only: bool, living: Callable[[], list[Node]]) -> Settled:
        """Return whether enough was heard, and if not, what is to be done.

        Args:
            left: how many ranks have not ended.
            victims_only: whether all that failed complain of a lost peer.
            living: returns the nodes on which ranks run.
        """
        if self._due is None:
            self._due, self._left = now + _SETTLE_S, left
        if now < self._due:
            return Settled(self._due, [])
        if victims_only and left:
            before, self._left = self._left, left
            if before - left >= _MANY:
                return self._wait(now + _HEAR_S)
            silent = [node for node in living() if not node.has_taken(self._mark)]
            if silent:
                self._doubted = True
                return self._wait(now + _HEAR_S, self._ask(silent))
        if self._doubted:
            self._doubted = False
            return self._wait(now + _SETTLE_S)
        return Settled(None, [])

    def _wait(self, until: float, asked: Optional[list[OrderEach]] = None) -> Settled:
        self._due = until
        return Settled(until, asked or [])

    def _ask(self, nodes: list[Node]) -> list[OrderEach]:
        """Say something that agents acknowledge as soon as they say anything, once to each."""
        unasked = [node for node in nodes if node.name not in self._probed]
        self._probed.update(node.name for node in unasked)
        names, said = [node.name for node in unasked], [node.last_said for node in unasked]
        return [OrderEach(names, lambda place: messages.Lease(said[place]), mark=self._mark)] if unasked else []
