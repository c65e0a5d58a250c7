"""What stands around the commands of a node: nothing here, the container of an environment where the plan names one."""

from __future__ import annotations

from typing import Callable, Mapping, NamedTuple, Optional, Sequence

from cordee.control.agent.orders import Handlers
from cordee.control.agent.output import LastOutput
from cordee.core.errors import CordeeError
from cordee.core.parts import load
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import TaskExit
from cordee.runs.plan import STEP_ENGINE, RunPlan, part_in
from cordee.wire.messages import Container as Prepare
from cordee.wire.messages import ContainerDone

PART = "enclosure"


class EnclosureDown(CordeeError):
    """What stands around the node's commands is not there now."""

    kind = "environment"


class AgentSurroundings(NamedTuple):
    """What an enclosure has of its agent.

    Attributes:
        plan: the run's.
        own: folders and files that every rank must see: the run's folder, the channels' folder.
        watched: starts processes.
        send: tells the supervisor.
        said: takes what is printed beside the answer: `said(stream, bytes)`.
        gone: called when one that was up has ended by itself; whatever ran in it is to be killed.
        node: the node's name.
    """

    plan: RunPlan
    own: Sequence[str]
    watched: WatchedTasks
    send: Callable[..., None]
    said: Callable[[int, bytes], None]
    gone: Callable[[], None]
    node: str = ""


class Enclosure:
    """Commands run on the host as it is. What systems put around them is a subclass, made by the agent from `node_parts` of
    the plan; all its methods are called in the agent's loop and none of them may wait.

    Attributes:
        encloses: whether commands see another root than the host's.
        lost: why one that was up has ended by itself; empty when it has not, or another one was asked for.
    """

    encloses = False
    lost = ""

    def __init__(self, around: AgentSurroundings) -> None:
        self._plan, self._send = around.plan, around.send

    @property
    def handlers(self) -> Handlers:
        """What takes the orders that are meant for it, by their type."""
        return {Prepare: self.prepare}

    @property
    def workdir(self) -> str:
        """Where commands begin, as they see it."""
        return self._plan.workdir

    @property
    def cwd(self) -> str:
        """Where their processes begin on the host."""
        return self._plan.workdir

    def prepare(self, order: Prepare, body: bytes) -> None:
        """Come up, and answer the order with ContainerDone once that is so, or cannot be."""
        self._send(ContainerDone(order.id, "pass", "", 0.0))

    def variables(self, host: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment of a command that has these variables on the host."""
        return dict(host)

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command line that runs `argv` inside.

        Raises:
            EnclosureDown: it is not up.
        """
        return tuple(argv)

    def wrap_rank(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command line of a rank.

        Raises:
            EnclosureDown: it is not up.
        """
        return tuple(argv)

    def words(self) -> list[str]:
        """Return what stands before a command that is to run inside; nothing where it is not up."""
        return []

    def explain(self, ended: TaskExit, said: Optional[LastOutput]) -> TaskExit:
        """Return how a rank ended, in better words where the enclosure knows them."""
        return ended

    async def close(self) -> None:
        """End in an orderly way; what does not end in time is left to the agent's last sweep."""


def enclosure_of(around: AgentSurroundings) -> Enclosure:
    """Return what stands around the commands of a node.

    Raises:
        CordeeError: the plan names a part that is not there.
    """
    plan = around.plan
    if plan.step.environment is None or plan.step.environment.engine == STEP_ENGINE:
        return Enclosure(around)
    enclosure: Enclosure = load(part_in(plan.node_parts, PART))(around)
    return enclosure
