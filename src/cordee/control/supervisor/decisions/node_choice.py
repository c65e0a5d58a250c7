"""Which nodes an attempt runs on, and whether it is worth waiting for more. Pure."""

from __future__ import annotations

from typing import Collection, NamedTuple, Optional, Union

from cordee.control.supervisor.decisions.nodes import Node, usable
from cordee.control.supervisor.decisions.outcomes import Ended, SegmentOver
from cordee.core.errors import EXIT_ABORT, EXIT_INTERNAL

_MOST_REASONS = 8


class ChosenNodes(NamedTuple):
    """Nodes in rank order, and the names of those that stand by and of those that must not take part."""

    chosen: list[Node]
    spares: list[str]
    excluded: list[str]


class NodePool:
    """The nodes that an attempt can be given, against how many the run wants; it changes none of them.

    Args:
        nodes: of the run, in their order.
        wanted, least: how many the run wants, and can do with.
    """

    def __init__(self, nodes: Collection[Node], wanted: int, least: int) -> None:
        self._nodes, self._wanted, self._least = nodes, wanted, least

    def choose(self, before: Collection[Node]) -> Union[ChosenNodes, Ended, SegmentOver]:
        """Return the nodes of the next attempt, or how the run ends because there are too few.

        Args:
            before: those that the last attempt ran on; they are preferred, but for those in whose place others should be.
        """
        candidates = usable(self._nodes)
        judged = [node for node in self._nodes if node.ready and not node.takes_part]
        if len(candidates) < self._least:
            reasons = [
                f"{node.name} is {node.verdict}: {result['check']}: {result['evidence']}"
                for node in judged
                for result in node.results
                if result["status"] in ("fail", "unknown")
            ]
            text = f"{len(candidates)} healthy nodes, {self._least} are needed"
            if not judged:
                return SegmentOver("node_lost", text)
            return Ended("failed", EXIT_ABORT, "vetting", "; ".join([text, *reasons[:_MOST_REASONS]]))
        names = {node.name for node in before}
        # What a node keeps must not run on beside the attempt: at most as many keep something as had ranks.
        candidates.sort(key=lambda node: (not node.keeps, bool(node.suspected), node.name not in names))
        place = {node.name: at for at, node in enumerate(self._nodes)}
        chosen, spares = candidates[: self._wanted], candidates[self._wanted :]
        chosen.sort(key=lambda node: place[node.name])
        return ChosenNodes(chosen, [node.name for node in spares], [node.name for node in judged])

    @property
    def all_connected(self) -> bool:
        """Whether an agent of each node has come."""
        return self._connected == len(self._nodes)

    @property
    def unsaid(self) -> bool:
        """Whether an agent has not come, and that is not said yet."""
        return any(node.session is None and not node.missed for node in self._nodes)

    @property
    def wants_more(self) -> bool:
        """Whether fewer nodes can hold ranks than are wanted."""
        return len(usable(self._nodes)) < self._wanted

    @property
    def needs_more(self) -> bool:
        """Whether fewer nodes can hold ranks than are needed."""
        return len(usable(self._nodes)) < self._least

    @property
    def to_vet_again(self) -> bool:
        """Whether a node has been suspected and not been looked at since."""
        return any(node.to_vet_again for node in self._nodes)

    @property
    def clearing(self) -> bool:
        """Whether ranks of an earlier attempt are being ended somewhere."""
        return any(node.clearing_since is not None for node in self._nodes)

    @property
    def may_return(self) -> bool:
        """Whether nodes are missing whose connection has just broken: they are heard of again soon, or lost."""
        return self.wants_more and any(
            node.ready and node.session is not None and node.connection is None for node in self._nodes
        )

    def may_keep(self, now: float, over_s: float) -> bool:
        """Return whether tasks of an earlier supervisor may run on a node that could not be given to an attempt now.

        Args:
            now: the time.
            over_s: after so long a silence nothing of it runs any more.
        """
        return any(node.keeps and node.connection is None and node.silent_s(now) < over_s for node in self._nodes)

    @property
    def may_be_replaced(self) -> bool:
        """Whether a node that is needed was lost while it was prepared: another agent may come for it."""
        return self.needs_more and self._unprepared

    @property
    def awaits_agents(self) -> bool:
        """Whether fewer nodes have been prepared than are needed, and others that once had an agent have not."""
        return sum(node.ready for node in self._nodes) < self._least and self._unprepared

    @property
    def broke_off(self) -> bool:
        """Whether checks of a node ended with an error of their own, as those do that were killed."""
        return any(result.get("cause") == "error" for node in self._nodes for result in node.results)

    def too_few_came(self, logs: str) -> Optional[SegmentOver]:
        """Return how the run ends if no more agents come, None where those that came are enough.

        Args:
            logs: where people find what agents said.
        """
        connected = self._connected
        if connected >= self._least:
            return None
        text = f"{connected} of {len(self._nodes)} agents connected, {self._least} nodes are needed"
        return SegmentOver("no_agents", f"{text}; see {logs}", EXIT_INTERNAL)

    def too_few_returned(self, waited_s: float) -> Optional[SegmentOver]:
        """Return how the run ends if no lost node comes back, None where it can go on."""
        lost = [node.name for node in self._nodes if node.connection is None]
        if not lost or not self.needs_more:
            return None
        text = f"{', '.join(lost)} did not come back within {waited_s:.0f} s and no spare is left"
        return SegmentOver("node_lost", text)

    @property
    def _connected(self) -> int:
        return sum(node.session is not None for node in self._nodes)

    @property
    def _unprepared(self) -> bool:
        return any(node.incarnation and not node.ready for node in self._nodes)
