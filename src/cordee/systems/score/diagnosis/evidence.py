"""What shows a cause: which windows, which values, on which device, rank and node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cordee.core.stats import outliers
from cordee.systems.score.diagnosis.longest_stretch import Scene, Spot
from cordee.systems.score.features import FEATURES

if TYPE_CHECKING:
    from cordee.systems.score.diagnosis.rules import ScoreRule
    from cordee.systems.score.trace.model import ScoredDevice

_SHOWN = 6
_NEVER = 0.02
_RESTS, _CALM = 0.6, 0.3


def evidence(spot: Spot, cells: np.ndarray, rule: ScoreRule) -> list[str]:
    """Return sentences on the windows that a rule took.

    Args:
        spot: their longest stretch, with the values of what the rule asks about.
        cells: all of them, boolean [window, device].
    """
    scene = spot.scene
    kind = scene.trace.kind
    said = [f"longest {spot.span} on {named(spot.device, kind)}"]
    if spot.values:
        said.append(f"there: {_said(spot.values)}")
    said += _spread(scene, cells)
    if rule.name in ("compute", "memory") and kind == "gpu":
        said += _pipes(spot)
    if rule.name == "communication":
        said += _straggler(scene, cells)
    if rule.name == "hang":
        said += _absent(scene, cells)
    if rule.name == "mixed":
        said += _lost(scene, cells)
    if rule.name in ("mixed", "idle"):
        said += _unseen_wait(scene, cells)
    return said


def asked(rule: ScoreRule) -> list[str]:
    """Return the features that a rule asks about, after use and SMs."""
    return list(dict.fromkeys(["graphics", "sm", *(name for condition in rule.when for name in condition.features)]))


def unknown_evidence(scene: Scene, cells: np.ndarray, rules: Sequence[ScoreRule], undecided: np.ndarray) -> list[str]:
    """Return sentences on windows without a class: which rule could not be decided, for want of which features."""
    total = float(scene.weight[cells].sum())
    found = []
    for at in np.unique(undecided[cells]):
        here = cells & (undecided == at)
        share = float(scene.weight[here].sum()) / total
        if at < 0:
            found.append((share, "no rule speaks of these windows"))
            continue
        rule = rules[int(at)]
        names = dict.fromkeys(name for condition in rule.when for name in condition.features)
        lacking = [name for name in names if not np.isfinite(scene.feature(name)[here]).all()]
        what = ", ".join(lacking) or "what it asks about"
        found.append((share, f"{percent(share)} of it: whether this is {rule.name} cannot be told without {what}"))
    return [text for _, text in sorted(found, reverse=True)[:3]]


def named(device: ScoredDevice, kind: str) -> str:
    """Return a device as a person would call it: `GPU 1 of n0 (rank 3)`."""
    place = f" of {device.node}" if device.node and device.key != device.node else ""
    if kind == "cpu":
        label = f"the cores of {device.node}" if device.node else "the cores"
    elif device.parent:
        label = f"instance {device.index}{place}"
    else:
        label = f"GPU {device.index}{place}"
    if not device.ranks or kind == "cpu":
        return label
    ranks = ", ".join(map(str, device.ranks[:4])) + (", ..." if len(device.ranks) > 4 else "")
    return f"{label} (rank{'s' if len(device.ranks) > 1 else ''} {ranks})"


def percent(share: float) -> str:
    """Return a share for people: `38 %`, `0.4 %`."""
    return f"{100 * share:.0f} %" if share >= 0.0095 or share == 0 else f"{100 * share:.1f} %"


def value_text(name: str, value: float) -> str:
    """Return a feature and its value with its unit: `graphics 0.12`, `writing 300 MB/s`."""
    unit = FEATURES[name][0] if name in FEATURES else "ratio"
    if unit == "ratio":
        return f"{name} {value:.2f}"
    number = f"{value:.0f}" if abs(value) >= 10 or value == 0 or unit in ("devices", "ranks") else f"{value:.1f}"
    return f"{name} {number}" + ("" if unit in ("devices", "ranks", "processes") else f" {unit}")


def _said(values: Mapping[str, float]) -> str:
    return ", ".join(value_text(name, value) for name, value in list(values.items())[:_SHOWN])


def _spread(scene: Scene, cells: np.ndarray) -> list[str]:
    """Say where it is most when devices differ."""
    measured = scene.weight.sum(axis=0)
    of_device = np.divide((scene.weight * cells).sum(axis=0), measured, out=np.zeros(len(measured)), where=measured > 0)
    if len(of_device) < 2 or of_device.max() - of_device[measured > 0].min() < 0.1:
        return []
    most = int(np.argmax(of_device))
    touched = int((of_device > 0).sum())
    where = named(scene.trace.devices[most], scene.trace.kind)
    return [f"on {touched} of {len(of_device)} devices, most on {where}: {percent(float(of_device[most]))} of its time"]


def _pipes(spot: Spot) -> list[str]:
    means = {name: spot.mean(name) for name in ("tensor", "fp64", "fp32", "fp16", "dram", "occupancy")}
    known = {name: mean for name, mean in means.items() if np.isfinite(mean)}
    return [f"of the hardware: {_said(known)}"] if known else []


def _straggler(scene: Scene, cells: np.ndarray) -> list[str]:
    """Name the device that works while the others wait."""
    there = np.asarray(cells.any(axis=1))
    work = np.where(there[:, None], scene.feature("SOL"), np.nan)
    known = np.isfinite(work)
    mean = np.divide(
        np.where(known, work, 0).sum(axis=0),
        known.sum(axis=0),
        out=np.full(work.shape[1], np.nan),
        where=known.any(axis=0),
    )
    found = outliers({at: float(value) for at, value in enumerate(mean)}, side="high")
    return [
        f"{named(scene.trace.devices[at], scene.trace.kind)} works at {outlier.value:.2f} of the roof meanwhile, the others"
        f" at {outlier.median:.2f}: they may wait for it"
        for at, outlier in sorted(found.items(), key=lambda pair: -pair[1].z)[:2]
    ]


def _absent(scene: Scene, cells: np.ndarray) -> list[str]:
    """Name the devices that rest, or do other work, while the others wait inside a kernel."""
    there = np.asarray(cells.any(axis=1))
    waits = np.asarray(cells[there].any(axis=0))
    graphics = scene.feature("graphics")[there]
    known = np.isfinite(graphics)
    use = np.divide(
        np.where(known, graphics, 0).sum(axis=0),
        known.sum(axis=0),
        out=np.full(len(waits), np.nan),
        where=known.any(axis=0),
    )
    others = np.flatnonzero(~waits & np.isfinite(use))
    said = [f"{named(scene.trace.devices[at], scene.trace.kind)} (in use {use[at]:.2f})" for at in others[:_SHOWN]]
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return [f"not waiting there meanwhile: {', '.join(said)}{more}"] if said else []


def _lost(scene: Scene, cells: np.ndarray) -> list[str]:
    """Say in which of time, breadth and depth these windows lose."""
    weight = np.where(cells, scene.weight, 0.0)
    sums = []
    for name in ("graphics", "sm", "SOL"):
        values = scene.feature(name)
        if not np.isfinite(values[cells]).any():
            return []
        sums.append(float((np.nan_to_num(values) * weight).sum() / weight.sum()))
    steps = [sums[0], sums[1] / sums[0] if sums[0] else 0.0, sums[2] / sums[1] if sums[1] else 0.0]
    lost = [-math.log(min(1.0, max(step, 1e-3))) for step in steps]
    worst = max(range(3), key=lambda at: lost[at])
    words = ", ".join(f"{name} {step:.2f}" for name, step in zip(("time", "breadth", "depth"), steps, strict=True))
    return [f"in these windows {words}: most is lost in {('time', 'breadth', 'depth')[worst]}"]


def _unseen_wait(scene: Scene, cells: np.ndarray) -> list[str]:
    """Say so where devices that work at times rest although nothing is busy: a sleeping loader looks like that."""
    if "data_wait" in scene.windows.features:
        return []
    graphics = scene.feature("graphics")
    works = (np.nan_to_num(graphics) * scene.weight).sum(axis=0) > _NEVER * scene.weight.sum(axis=0)
    rests = cells & (graphics < _RESTS) & works[None, :]
    for name, most in (
        ("cpu" if scene.trace.kind == "gpu" else "sm", _CALM),
        ("thr", 0.9),
        ("io", 0.05),
        ("starved", _CALM),
    ):
        values = scene.feature(name)
        rests &= ~(np.isfinite(values) & (values >= most))
    share = float(scene.weight[rests].sum() / scene.weight.sum())
    if share < 0.05:
        return []
    return [
        f"in {percent(share)} of the time the devices were idle while no CPU and no storage was busy: counters cannot explain"
        " this wait (a sleep, a lock, a remote service); log `data_wait_s` in the training loop to confirm"
    ]
