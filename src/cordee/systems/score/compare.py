"""What moved between jobs. One run of each does not tell a change from how runs of one job differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordee.systems.score.result import CLASSES, UNKNOWN, Saturation

if TYPE_CHECKING:
    import numpy as np

PARTS = ("time", "breadth", "depth")
_NUMBERS = {**{name: at for at, name in enumerate(CLASSES)}, UNKNOWN: -1}


@dataclass(frozen=True)
class Moved:
    """One number of two jobs.

    Attributes:
        name: `score` (0-100), `time`, `breadth`, `depth`, a class's share (0-1), `energy_joules`, or what was logged per second.
        before, after: None where it was not measured; `change` is after - before.
    """

    name: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """After - before, None where either is not known."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True)
class JobPair:
    """A job against the first one.

    Attributes:
        against: why the two are not the same kind of measurement; empty: they can be compared.
        score: what it moved by; `parts`: points of that by time, breadth and depth, which add up to it.
        classes: shares of those that moved; `others`: energy and what was logged.
    """

    before: str
    after: str
    against: tuple[str, ...]
    score: Moved
    parts: dict[str, float]
    classes: tuple[Moved, ...]
    others: tuple[Moved, ...]


@dataclass(frozen=True)
class JobComparison:
    """Each job against the first one, in the order in which they were given."""

    pairs: tuple[JobPair, ...]


def compare(results: Sequence[Saturation]) -> JobComparison:
    """Return what moved from the first job to each of the others.

    Args:
        results: two scorings or more; with fewer there is nothing to compare.
    """
    if len(results) < 2:
        return JobComparison(())
    return JobComparison(tuple(_pair(results[0], after) for after in results[1:]))


def split_change(before: Saturation, after: Saturation) -> dict[str, float]:
    """Return how many points of the change of score come from time, breadth and depth; they add up to it exactly.

    The change of a product is shared out by the logarithms of its factors' ratios (logarithmic mean Divisia index). Where a
    score is zero or missing nothing can be shared out, and the dict is empty.
    """
    first, second = before.shares, after.shares
    if not first.score or not second.score:
        return {}
    change, ratio = second.score - first.score, math.log(second.score / first.score)
    mean = change / ratio if abs(ratio) > 1e-12 else first.score
    found = {}
    for name in PARTS:
        factors = getattr(first, name), getattr(second, name)
        if not factors[0] or not factors[1]:
            return {}
        found[name] = mean * math.log(factors[1] / factors[0])
    return found


def _pair(before: Saturation, after: Saturation) -> JobPair:
    told = [_class_shares(result) for result in (before, after)]
    classes = [Moved(name, told[0].get(name, 0.0), told[1].get(name, 0.0)) for name in {**told[0], **told[1]}]
    classes.sort(key=lambda moved: -abs(moved.change or 0.0))
    others = [Moved("energy_joules", before.energy_joules, after.energy_joules)]
    others += [Moved(name, before.rates.get(name), after.rates.get(name)) for name in {**before.rates, **after.rates}]
    return JobPair(
        before.job.name,
        after.job.name,
        _against(before, after),
        Moved("score", before.shares.score, after.shares.score),
        split_change(before, after),
        tuple(moved for moved in classes if abs(moved.change or 0.0) >= 0.01),
        tuple(moved for moved in others if moved.before is not None or moved.after is not None),
    )


def _against(before: Saturation, after: Saturation) -> tuple[str, ...]:
    """Return why two scorings are not of the same kind."""
    reasons = []
    if before.kind != after.kind:
        reasons.append(f"one is of {_KIND[before.kind]}, the other of {_KIND[after.kind]}")
    models = [sorted({part.device.model for part in result.devices if part.device and part.device.model}) for result in (before, after)]  # fmt: skip
    if models[0] != models[1] and all(models):
        reasons.append(f"the devices differ: {', '.join(models[0])}; {', '.join(models[1])}")
    counts = [result.job.allocated or len(result.devices) for result in (before, after)]
    if counts[0] != counts[1]:
        reasons.append(
            f"the jobs held {counts[0]} and {counts[1]} devices: a larger job scores lower for the same work"
        )
    sizes = [result.job.world_size for result in (before, after)]
    if sizes[0] != sizes[1] and all(sizes):
        reasons.append(f"they had {sizes[0]} and {sizes[1]} ranks")
    if set(before.assumed) != set(after.assumed):
        reasons.append(
            f"{' and '.join(sorted({*before.assumed} ^ {*after.assumed}))} was measured in one of them and assumed to be 1 in the other"
        )
    if [cap.pipe | {"dram": cap.dram} for cap in before.caps] != [cap.pipe | {"dram": cap.dram} for cap in after.caps] and models[0] == models[1]:  # fmt: skip
        reasons.append("different caps count as full")
    return tuple(reasons)


_KIND = {"gpu": "GPUs", "cpu": "CPU cores"}


def _class_shares(result: Saturation) -> dict[str, float]:
    """Return the share of each class in the measured windows, empty without any."""
    seen = _seen(result)
    known = int(seen.sum())
    if not known:
        return {}
    shares = {name: float((seen & (result.windows.classes == at)).sum()) / known for name, at in _NUMBERS.items()}
    return {name: share for name, share in shares.items() if share > 0}


def _seen(result: Saturation) -> np.ndarray:
    """Return bool [window, device]: where the device was measured at all."""
    import numpy as np

    graphics = result.windows.features.get("graphics")
    return np.ones(result.windows.classes.shape, bool) if graphics is None else np.isfinite(graphics)
