"""What an agent asks of its back end: which node it serves, and who brings the run back when no supervisor can."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Protocol

from cordee.core.backends import backend_on_node
from cordee.core.parts import load
from cordee.runs.folder import RunFolder
from cordee.runs.plan import RunPlan


class Rescue(Protocol):
    """Has the place run a job again whose supervisor, or the node that it was on, is gone.

    `led` says whether a supervisor leads this agent, or has let it go.
    """

    async def terminated(self, led: Callable[[], bool]) -> None:
        """The agent was told to end: return once it is known that the run ends, or comes back without this agent."""

    async def unheard(self, led: Callable[[], bool]) -> bool:
        """Return whether the job of an agent ends that has just begun: it may have been told so before it could hear it."""

    async def orphaned(self) -> None:
        """No supervisor was found for long: bring the run back, unless somebody else does."""


class RescueClaim(NamedTuple):
    """The node that an agent serves; its incarnation there, None where another agent serves it well; and its rescue."""

    node: str
    incarnation: Optional[int]
    rescue: Rescue


def claim_here(folder: RunFolder, plan: RunPlan, replaces: int) -> Optional[RescueClaim]:
    """Return the node that this process serves by what its back end says; None where it does not say.

    Args:
        replaces: the greatest incarnation that is to make room; 0 when none is known to be bad.
    """
    part = backend_on_node(plan.backend, plan.backend_part).claim
    claim: Optional[RescueClaim] = load(part)(folder, plan, replaces) if part else None
    return claim
