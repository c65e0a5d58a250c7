"""Which ranks of an attempt start, run or have ended, as far as agents say. Pure."""

from __future__ import annotations

STARTING, RUNNING, ENDED = "starting", "running", "ended"


class Roll:
    """The ranks of one attempt, the same number on each node, in the order of the nodes.

    Args:
        nodes: how many.
        per_node: ranks on each.

    Attributes:
        running: the ranks that run.
        left: how many have not ended.
    """

    def __init__(self, nodes: int, per_node: int) -> None:
        self._per_node = per_node
        self._status = dict.fromkeys(range(nodes * per_node), STARTING)
        self._left_on = [per_node] * nodes
        self.left = len(self._status)
        self.running: set[int] = set()

    def __len__(self) -> int:
        """Return how many ranks there are."""
        return len(self._status)

    def of(self, node: int) -> range:
        """Return the ranks of a node, by its place in the order."""
        return range(node * self._per_node, (node + 1) * self._per_node)

    def has_left(self, node: int) -> bool:
        """Return whether a rank of a node has not ended."""
        return self._left_on[node] > 0

    def starts(self, rank: int) -> bool:
        """A rank runs; return whether that is new."""
        if self._status.get(rank) != STARTING:
            return False
        self._status[rank] = RUNNING
        self.running.add(rank)
        return True

    def ends(self, rank: int) -> bool:
        """A rank has ended; return whether that is new."""
        if self._status.get(rank) in (None, ENDED):
            return False
        self._status[rank] = ENDED
        self.running.discard(rank)
        self.left -= 1
        self._left_on[rank // self._per_node] -= 1
        return True
