"""What it takes to train so much: the time, GPU-hours and energy of a goal in tokens, samples or steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cordee.core.errors import UsageError
from cordee.core.units import format_duration
from cordee.systems.sizing.devices import PlannedGpu
from cordee.systems.sizing.layouts import RankedLayout

_UNITS = ("tokens", "samples", "steps")
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_GOAL = re.compile(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmbgt]?)\s*(tokens|samples|steps)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Goal:
    """So many tokens, samples or steps."""

    amount: float
    unit: str = "tokens"

    def seconds(self, one: RankedLayout) -> float | None:
        """Return how long a layout takes; None where its pace, or its pace in this unit, is not known."""
        if one.time is None:
            return None
        if self.unit == "steps":
            return self.amount * one.time.seconds
        return self.amount / one.time.tokens_per_second if self.unit == one.unit else None

    def document(self, one: RankedLayout, device: PlannedGpu | None) -> dict[str, Any]:
        """Return it for a layout, as JSON has it: energy is that of GPUs at their limit of power."""
        seconds = self.seconds(one)
        hours = None if seconds is None else seconds / 3600 * one.layout.gpus
        watts = device.power if device else None
        return {
            "amount": self.amount,
            "unit": self.unit,
            "seconds": seconds,
            "gpu_hours": hours,
            "energy_joules": None if hours is None or watts is None else hours * 3600 * watts,
        }

    def words(self, one: RankedLayout, device: PlannedGpu | None) -> str:
        """Return it in a line."""
        found = self.document(one, device)
        what = f"{self.amount:,.0f} {self.unit} by {one.layout.name}"
        if found["seconds"] is None:
            return f"{what}: its pace is not known in {self.unit}"
        joules = found["energy_joules"]
        energy = "" if joules is None else f", at most {joules / 3.6e6:,.0f} kWh of the GPUs"
        return f"{what}: {format_duration(found['seconds'])}, {found['gpu_hours']:,.1f} GPU-hours{energy}"


def read_goal(text: str) -> Goal:
    """Return a goal as people write it: `300B tokens`, `90e6 samples`, `20k steps`.

    Raises:
        UsageError: it is none.
    """
    found = _GOAL.fullmatch(text)
    try:
        amount = float(found.group(1)) * _SCALES[found.group(2).lower()] if found else 0.0
    except ValueError:
        amount = 0.0
    if not found or amount <= 0:
        raise UsageError(
            "this is no goal",
            given=text,
            allowed="N tokens, N samples, N steps; N such as 300B or 2e6",
            next="--goal 300B",
        )
    return Goal(amount, (found.group(3) or _UNITS[0]).lower())
