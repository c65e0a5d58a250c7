"""Which nodes an attempt runs on, and whether it is worth waiting for more. Pure."""

from __future__ import annotations

from typing import Collection, NamedTuple, Union

from cordee.control.supervisor.nodes import Node, usable
from cordee.control.supervisor.outcomes import Ended, SegmentOver
from cordee.core.errors import EXIT_ABORT

_MOST_REASONS = 8


class ChosenNodes(NamedTuple):
    """Nodes in rank order, and the names of those that stand by and of those that must not take part."""

    chosen: list[Node]
    spares: list[str]
    excluded: list[str]


def choice(
    nodes: Collection[Node], wanted: int, least: int, before: Collection[str]
) -> Union[ChosenNodes, Ended, SegmentOver]:
    """Return the nodes of the next attempt, or how the run ends because there are too few.

    Args:
        nodes: of the run, in their order.
        wanted, least: how many it wants, and can do with.
        before: the names of those that the last attempt ran on; they are preferred.
    """
    candidates = usable(nodes)
    judged = [node for node in nodes if node.ready and node.verdict in ("bad", "unknown")]
    if len(candidates) < least:
        reasons = [
            f"{node.name} is {node.verdict}: {result['check']}: {result['evidence']}"
            for node in judged
            for result in node.results
            if result["status"] in ("fail", "unknown")
        ]
        text = f"{len(candidates)} healthy nodes, {least} are needed"
        if not judged:
            return SegmentOver("node_lost", text)
        return Ended("failed", EXIT_ABORT, "vetting", "; ".join([text, *reasons[:_MOST_REASONS]]))
    candidates.sort(key=lambda node: node.name not in before)
    place = {node.name: at for at, node in enumerate(nodes)}
    chosen = sorted(candidates[:wanted], key=lambda node: place[node.name])
    return ChosenNodes(chosen, [node.name for node in candidates[wanted:]], [node.name for node in judged])


def too_few(nodes: Collection[Node], wanted: int) -> bool:
    """Return whether fewer nodes can hold ranks than are wanted."""
    return len(usable(nodes)) < wanted


def may_return(nodes: Collection[Node], wanted: int) -> bool:
    """Return whether nodes are missing whose connection has just broken: they are heard of again soon, or lost."""
    return too_few(nodes, wanted) and any(
        node.ready and node.session is not None and node.connection is None for node in nodes
    )


def may_be_replaced(nodes: Collection[Node], least: int) -> bool:
    """Return whether a node that is needed was lost while it was prepared: another agent may come for it."""
    return too_few(nodes, least) and any(node.incarnation and not node.ready for node in nodes)


def awaits_agents(nodes: Collection[Node], least: int) -> bool:
    """Return whether fewer nodes have been prepared than are needed, and others that once had an agent have not."""
    return sum(node.ready for node in nodes) < least and any(node.incarnation and not node.ready for node in nodes)


def broke_off(nodes: Collection[Node]) -> bool:
    """Return whether checks of a node ended with an error of their own, as those do that were killed."""
    return any(result.get("cause") == "error" for node in nodes for result in node.results)
