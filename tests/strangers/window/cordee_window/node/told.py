"""Tells ranks how long they have."""

from __future__ import annotations

from cordee.control.agent.companions import Companion


class Told(Companion):
    """Sets a variable."""

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        open_s = self.plan.step.systems["window"]["open_s"]
        return {**env, "WINDOW": f"rank {rank} on {self.node}: {open_s:g} s", "WINDOW_FROM": __file__}
