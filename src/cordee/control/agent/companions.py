"""What systems run beside the ranks of a node: one port that any number of them fill."""

from __future__ import annotations

from cordee.core.parts import load
from cordee.runs.plan import RunPlan

# In `node_parts` of the plan, before the name of a system.
PORT = "companion/"


class Companion:
    """A system's part on one node, made by the agent when it starts. Its methods are called in the agent's loop: none may wait.

    Args:
        plan: the run's; `plan.step.systems` holds what the system planned.
        node: the node's name.
    """

    def __init__(self, plan: RunPlan, node: str) -> None:
        self.plan, self.node = plan, node

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        """Return the environment of a rank that is about to start, with what the system adds to it."""
        return env

    async def close(self) -> None:
        """The agent ends."""


class Companions:
    """All of them, in the order of their systems' names.

    Raises:
        CordeeError: the plan names one that is not there.
    """

    def __init__(self, plan: RunPlan, node: str) -> None:
        parts = (part for port, part in sorted(plan.node_parts.items()) if port.startswith(PORT))
        self._all: list[Companion] = [load(part)(plan, node) for part in parts]

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        """Return the environment of a rank with what all of them add."""
        for companion in self._all:
            env = companion.environment(env, rank)
        return env

    async def close(self) -> None:
        """The agent ends."""
        for companion in self._all:
            await companion.close()
