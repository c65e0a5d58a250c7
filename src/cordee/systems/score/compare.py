"""What moved between jobs, with an interval that tells progress from noise.

Windows of one job are resampled in blocks (a circular block bootstrap: neighbouring windows are alike, and the devices of a
window stay together), each job by itself, 2,000 times with a fixed seed. The interval holds the noise within the runs; what
differs from one run of the same job to the next only several runs can tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cordee.systems.score.result import CLASSES, UNKNOWN, Saturation

if TYPE_CHECKING:
    import numpy as np

PARTS = ("time", "breadth", "depth")
LEVEL = 0.95
_DRAWS = 2000
_LEAST_WINDOWS = 8
_BLOCK_S = 60.0
_NUMBERS = {**{name: at for at, name in enumerate(CLASSES)}, UNKNOWN: -1}


@dataclass(frozen=True)
class Moved:
    """One number of two jobs.

    Attributes:
        name: `score` (0-100), `time`, `breadth`, `depth`, a class's share (0-1), `energy_joules`, or what was logged per second.
        before, after: None where it was not measured; `change` is after - before.
        low, high: the interval of the change (95 %); None where there are too few windows, or none.
    """

    name: str
    before: float | None
    after: float | None
    low: float | None = None
    high: float | None = None

    @property
    def change(self) -> float | None:
        """After - before, None where either is not known."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def clear(self) -> bool | None:
        """Whether the interval leaves out zero; None without an interval."""
        return None if self.low is None or self.high is None else self.low > 0 or self.high < 0


@dataclass(frozen=True)
class JobPair:
    """A job against the first one.

    Attributes:
        against: why the two are not the same kind of measurement; empty: they can be compared.
        score: what it moved by; `parts`: points of that by time, breadth and depth, which add up to it.
        moved: time, breadth, depth; `classes`: shares of those that moved; `others`: energy and what was logged.
    """

    before: str
    after: str
    against: tuple[str, ...]
    score: Moved
    parts: dict[str, float]
    moved: tuple[Moved, ...]
    classes: tuple[Moved, ...]
    others: tuple[Moved, ...]

    @property
    def comparable(self) -> bool:
        """Whether nothing speaks against comparing the two."""
        return not self.against


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
    draws = [_draws(result, seed) for seed, result in enumerate(results)]
    pairs = (
        _pair(results[0], after, draws[0], draw) for after, draw in zip(results[1:], draws[1:], strict=True)
    )  # fmt: skip
    return JobComparison(tuple(pairs))


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


def _pair(
    before: Saturation, after: Saturation, first: dict[str, np.ndarray], second: dict[str, np.ndarray]
) -> JobPair:
    names = ("score", *PARTS)
    shares = [
        _moved(name, getattr(before.shares, name), getattr(after.shares, name), first, second) for name in names
    ]  # fmt: skip
    told = [_class_shares(result) for result in (before, after)]
    classes = [
        _moved(name, told[0].get(name, 0.0), told[1].get(name, 0.0), first, second) for name in {**told[0], **told[1]}
    ]
    classes.sort(key=lambda moved: -abs(moved.change or 0.0))
    others = [Moved("energy_joules", before.energy_joules, after.energy_joules)]
    others += [Moved(name, before.rates.get(name), after.rates.get(name)) for name in {**before.rates, **after.rates}]
    return JobPair(
        before.job.name,
        after.job.name,
        _against(before, after),
        shares[0],
        split_change(before, after),
        tuple(shares[1:]),
        tuple(moved for moved in classes if abs(moved.change or 0.0) >= 0.01),
        tuple(moved for moved in others if moved.before is not None or moved.after is not None),
    )


def _moved(
    name: str,
    before: float | None,
    after: float | None,
    first: dict[str, np.ndarray],
    second: dict[str, np.ndarray],
) -> Moved:
    """Return a change with its interval: that of the draws, moved to where the change itself lies."""
    import numpy as np

    found = Moved(name, before, after)
    if found.change is None or not first or not second:
        return found
    nothing = np.zeros(_DRAWS)
    spread = second.get(name, nothing) - first.get(name, nothing)
    spread = spread[np.isfinite(spread)]
    if not len(spread):
        return found
    edge = (1 - LEVEL) / 2
    low, middle, high = np.quantile(spread, (edge, 0.5, 1 - edge))
    return replace(found, low=found.change + float(low - middle), high=found.change + float(high - middle))


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


def _draws(result: Saturation, seed: int) -> dict[str, np.ndarray]:
    """Return float64 [draw] of score, time, breadth, depth and the shares of classes; empty where windows are too few."""
    import numpy as np

    windows = result.windows
    sums = _window_sums(result)
    if sums is None:
        return {}
    count = sums.shape[1]
    least = math.ceil(_BLOCK_S / windows.length_s) if windows.length_s > 0 else 1
    block = max(1, min(count // 4, max(least, math.ceil(count ** (1 / 3)))))
    starts = np.random.default_rng(seed).integers(0, count, (_DRAWS, -(-count // block)))
    running = np.cumsum(np.concatenate([np.zeros((len(sums), 1)), sums, sums[:, : block - 1]], axis=1), axis=1)
    blocks = running[:, block:] - running[:, :-block]
    drawn = np.stack([row[starts].sum(axis=1) for row in blocks])
    number, graphics, sm, sol, known, *classes = drawn
    with np.errstate(divide="ignore", invalid="ignore"):
        found = {"score": 100 * sol / number, "time": graphics / number, "breadth": sm / graphics, "depth": sol / sm}
        for name, hits in zip(_NUMBERS, classes, strict=True):
            found[name] = np.where(known > 0, hits / known, 0.0)
    return found


def _window_sums(result: Saturation) -> np.ndarray | None:
    """Return float64 [what, window], summed over devices: number, graphics, sm, sol, measured, one row per class."""
    import numpy as np

    windows, features = result.windows, result.windows.features
    graphics = features.get("graphics")
    if graphics is None or len(windows.starts) < _LEAST_WINDOWS:
        return None
    sm = features.get("sm", graphics)  # what is assumed to be 1
    sol = features.get("SOL", sm)
    there = np.isfinite(graphics) & np.isfinite(sm) & np.isfinite(sol)
    rows = [
        there.sum(axis=1),
        *(np.where(there, values, 0).sum(axis=1, dtype=np.float64) for values in (graphics, sm, sol)),
    ]
    seen = _seen(result)
    rows.append(seen.sum(axis=1))
    rows += [(seen & (windows.classes == at)).sum(axis=1) for at in _NUMBERS.values()]
    return np.stack(rows).astype(np.float64)
