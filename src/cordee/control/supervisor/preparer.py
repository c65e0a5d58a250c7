"""What makes nodes ready for ranks and judges them: one port, filled by the system that `node_parts` of the plan names."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Union

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.vocabulary import NodeJudged, NodePrepared
from cordee.runs.journal import JournalWriter
from cordee.runs.plan import RunPlan
from cordee.wire.messages import FromAgent

PART = "preparation"


class PreparedAllocation(NamedTuple):
    """What a preparer has of its supervisor.

    Attributes:
        plan: the run's plan.
        folder: the run's folder.
        nodes: by name.
        journal: where verdicts are written.
        job: the scheduler's name of the allocation.
        order: gives an agent an order: `order(node, message)`; False where the agent is gone.
        happened: told how each preparation and each judgement of a node came out.
        ended: called whenever a node's preparation has ended, with the error that broke it, if one did.
    """

    plan: RunPlan
    folder: str
    nodes: dict[str, Node]
    journal: JournalWriter
    job: Optional[str]
    order: Callable[..., bool]
    happened: Callable[[Union[NodePrepared, NodeJudged]], None]
    ended: Callable[[Optional[BaseException]], None]


class NodePreparer:
    """Makes nodes ready, each alone as it comes and then all together. Called in the supervisor's loop, where nothing waits;
    made anew by each supervisor, as `make(allocation)`."""

    @property
    def busy(self) -> bool:
        """Whether a node is being prepared."""
        return False

    def begin(self, node: Node, reason: str = "its agent was replaced", again: bool = False) -> None:
        """Make a node ready whose agent is new, or has lost what had been prepared; an earlier try ends for `reason`.

        Args:
            again: it is as it was prepared, and only to be judged anew.
        """
        raise NotImplementedError("a preparer makes nodes ready")

    def message(self, node: Node, message: FromAgent, body: bytes) -> None:
        """Take what an agent says of it."""

    def lost(self, node: Node, reason: str) -> None:
        """A node's agent is gone."""

    async def conclude(self) -> Optional[str]:
        """Judge the nodes against each other if there are new results, and tell the verdict on every node.

        Returns:
            Why no node may start; else None.
        """
        return None
