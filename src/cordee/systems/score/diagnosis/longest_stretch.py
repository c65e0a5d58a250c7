"""The longest stretch of windows of one class on one device: what evidence points at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cordee.systems.score.result import ScoreWindows
    from cordee.systems.score.trace.model import ScoredDevice, ScoreTrace

_DAY_S = 86400


@dataclass(frozen=True)
class Scene:
    """What evidence is taken from; `weight` is float64 [window, device], measured seconds."""

    trace: ScoreTrace
    windows: ScoreWindows
    weight: np.ndarray

    def feature(self, name: str) -> np.ndarray:
        """Return a feature [window, device], NaN everywhere when nobody measured it."""
        found = self.windows.features.get(name)
        return np.full(self.weight.shape, np.nan) if found is None else found


@dataclass(frozen=True)
class Spot:
    """Windows `first` to before `stop` of one device; `values` are means of features over them."""

    scene: Scene
    first: int
    stop: int
    column: int
    values: dict[str, float]

    @property
    def device(self) -> ScoredDevice:
        """The device."""
        return self.scene.trace.devices[self.column]

    @property
    def times(self) -> tuple[float, float]:
        """When it began and ended, UTC epoch seconds."""
        starts, times = self.scene.windows.starts, self.scene.trace.times
        return float(starts[self.first]), float(starts[self.stop] if self.stop < len(starts) else times[-1])

    @property
    def span(self) -> str:
        """When it was, for people; with the day in a run of more than one."""
        times = self.scene.trace.times
        form = "%Y-%m-%dT%H:%M:%S" if float(times[-1]) - float(times[0]) > _DAY_S else "%H:%M:%S"
        began, ended = (time.strftime(form, time.gmtime(moment)) for moment in self.times)
        return f"{began}-{ended} UTC"

    def mean(self, name: str) -> float:
        """Return the mean of a feature there, NaN where it was not measured."""
        values = self.scene.feature(name)[self.first : self.stop, self.column]
        values = values[np.isfinite(values)]
        return float(values.mean()) if len(values) else float("nan")

    def document(self) -> dict[str, Any]:
        """Return it for programs."""
        start, end = self.times
        device = self.device
        about = {"device": device.key, "node": device.node, "ranks": list(device.ranks)}
        return {"start": start, "end": end, **about, "values": dict(self.values)}


def longest(scene: Scene, cells: np.ndarray, names: Sequence[str]) -> Spot:
    """Return the longest stretch in `cells` (boolean [window, device]; at least one is true), with these features' means."""
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
    bare = Spot(scene, *best, values={})
    means = {name: bare.mean(name) for name in dict.fromkeys(names)}
    return Spot(scene, *best, values={name: mean for name, mean in means.items() if np.isfinite(mean)})
