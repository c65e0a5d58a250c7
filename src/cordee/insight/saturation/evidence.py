"""What shows a cause: which windows, which values, on which device, rank and node."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cordee.insight.peers import outliers
from cordee.insight.saturation.features import FEATURES

if TYPE_CHECKING:
    from cordee.insight.saturation.result import Windows
    from cordee.insight.saturation.rules import Rule
    from cordee.insight.saturation.trace import Device, Trace

_SHOWN = 6
_DAY_S = 86400
_RESTS, _CALM = 0.6, 0.3


@dataclass(frozen=True)
class Scene:
    """What evidence is taken from; `weight` is float64 [window, device], measured seconds."""

    trace: Trace
    windows: Windows
    weight: np.ndarray


def evidence(scene: Scene, cells: np.ndarray, rule: Rule) -> list[str]:
    """Return sentences on the windows (boolean [window, device]) that a rule took."""
    start, stop, column = _longest(cells)
    device = scene.trace.devices[column]
    span = _span(scene, start, stop)
    said = [f"longest {span} on {named(device, scene.trace.kind)}"]
    names = ["graphics", "sm", *(name for condition in rule.when for name in condition.features)]
    values = _values(scene, names, slice(start, stop), column)
    if values:
        said.append(f"there: {values}")
    said += _spread(scene, cells)
    if rule.name in ("compute", "memory") and scene.trace.kind == "gpu":
        said += _pipes(scene, start, stop, column)
    if rule.name == "communication":
        said += _straggler(scene, cells)
    if rule.name == "mixed":
        said += _lost(scene, cells)
    if rule.name in ("mixed", "idle"):
        said += _unseen_wait(scene, cells)
    return said


def unknown_evidence(scene: Scene, cells: np.ndarray, rules: Sequence[Rule], undecided: np.ndarray) -> list[str]:
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
        lacking = [name for name in names if not np.isfinite(_feature(scene, name)[here]).all()]
        what = ", ".join(lacking) or "what it asks about"
        found.append((share, f"{percent(share)} of it: whether this is {rule.name} cannot be told without {what}"))
    return [text for _, text in sorted(found, reverse=True)[:3]]


def named(device: Device, kind: str) -> str:
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


def _feature(scene: Scene, name: str) -> np.ndarray:
    found = scene.windows.features.get(name)
    return np.full(scene.weight.shape, np.nan) if found is None else found


def _longest(cells: np.ndarray) -> tuple[int, int, int]:
    """Return (first window, one after the last, column) of the longest stretch of one device."""
    best = (0, 0, 0)
    padded = np.zeros((cells.shape[0] + 2, cells.shape[1]), dtype=np.int8)
    padded[1:-1] = cells
    change = np.diff(padded, axis=0)
    for column in np.flatnonzero(cells.any(axis=0)):
        starts, stops = np.flatnonzero(change[:, column] == 1), np.flatnonzero(change[:, column] == -1)
        at = int(np.argmax(stops - starts))
        if stops[at] - starts[at] > best[1] - best[0]:
            best = (int(starts[at]), int(stops[at]), int(column))
            if best[1] - best[0] == cells.shape[0]:
                break
    return best


def _span(scene: Scene, start: int, stop: int) -> str:
    windows, times = scene.windows, scene.trace.times
    began = float(windows.starts[start])
    ended = float(windows.starts[stop]) if stop < len(windows.starts) else float(times[-1])
    dated = ended - float(times[0]) > _DAY_S
    form = "%Y-%m-%dT%H:%M:%S" if dated else "%H:%M:%S"
    return f"{time.strftime(form, time.gmtime(began))}-{time.strftime(form, time.gmtime(ended))} UTC"


def _values(scene: Scene, names: Sequence[str], rows: slice, column: int) -> str:
    said: list[str] = []
    for name in dict.fromkeys(names):
        values = _feature(scene, name)[rows, column]
        values = values[np.isfinite(values)]
        if len(values) and len(said) < _SHOWN:
            said.append(value_text(name, float(values.mean())))
    return ", ".join(said)


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


def _pipes(scene: Scene, start: int, stop: int, column: int) -> list[str]:
    values = _values(scene, ("tensor", "fp64", "fp32", "fp16", "dram", "occupancy"), slice(start, stop), column)
    return [f"of the hardware: {values}"] if values else []


def _straggler(scene: Scene, cells: np.ndarray) -> list[str]:
    """Name the device that works while the others wait."""
    there = np.asarray(cells.any(axis=1))
    work = np.where(there[:, None], _feature(scene, "SOL"), np.nan)
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


def _lost(scene: Scene, cells: np.ndarray) -> list[str]:
    """Say in which of time, breadth and depth these windows lose."""
    weight = np.where(cells, scene.weight, 0.0)
    sums = []
    for name in ("graphics", "sm", "SOL"):
        values = _feature(scene, name)
        if not np.isfinite(values[cells]).any():
            return []
        sums.append(float((np.nan_to_num(values) * weight).sum() / weight.sum()))
    steps = [sums[0], sums[1] / sums[0] if sums[0] else 0.0, sums[2] / sums[1] if sums[1] else 0.0]
    lost = [-math.log(min(1.0, max(step, 1e-3))) for step in steps]
    worst = max(range(3), key=lambda at: lost[at])
    words = ", ".join(f"{name} {step:.2f}" for name, step in zip(("time", "breadth", "depth"), steps, strict=True))
    return [f"in these windows {words}: most is lost in {('time', 'breadth', 'depth')[worst]}"]


def _unseen_wait(scene: Scene, cells: np.ndarray) -> list[str]:
    """Say so where devices rest although nothing that is measured is busy: a sleeping loader looks like that."""
    if "data_wait" in scene.windows.features:
        return []
    rests = cells & (_feature(scene, "graphics") < _RESTS)
    for name, most in (
        ("cpu" if scene.trace.kind == "gpu" else "sm", _CALM),
        ("thr", 0.9),
        ("io", 0.05),
        ("starved", _CALM),
    ):
        values = _feature(scene, name)
        rests &= ~(np.isfinite(values) & (values >= most))
    share = float(scene.weight[rests].sum() / scene.weight.sum())
    if share < 0.05:
        return []
    return [
        f"in {percent(share)} of the time the devices rested while no CPU and no storage was busy: a wait was seen that counters"
        " cannot explain (a sleep, a lock, a remote service); `cordee.log(data_wait_s=...)` in the training loop would tell"
    ]
