"""What moved with the time of a step in a run: as data and as lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cordee.core.errors import UsageError
from cordee.core.units import format_duration
from cordee.systems.explain.correlation.figures import (
    LEAST_WINDOWS,
    MovedMetric,
    clipped,
    enough,
    lagged,
    least_z,
    moved,
    step_seconds,
    windows_of,
)

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

SCHEMA = "cordee.correlate/1"
_MOST_LAG_S = 60.0
_MOST_WINDOWS = 2880
_RESERVED = "cordee/"
_MOST_CURVES, _MOST_POINTS = 24, 480
_LOG = "cordee.log(step=step, loss=loss)"


@dataclass(frozen=True)
class Correlations:
    """What moved with the steps.

    Attributes:
        start, stop: the stretch that was looked at, UTC seconds, in windows of `window_s`.
        step_s: the median time of a step; spread: from the 5th to the 95th percentile.
        looked_at: how many series, each of one metric of one device.
        found: the strongest first.
        step_times: the median time of a step in each window, NaN where none ended.
    """

    run: str
    start: float
    stop: float
    window_s: float
    windows: int
    step_s: float
    spread: tuple[float, float]
    looked_at: int
    found: tuple[MovedMetric, ...]
    step_times: np.ndarray = field(repr=False, compare=False)

    def document(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            "schema": SCHEMA,
            "run": self.run,
            "start": self.start,
            "stop": self.stop,
            "window_s": self.window_s,
            "windows": self.windows,
            "step_s": self.step_s,
            "step_s_5_95": list(self.spread),
            "series": self.looked_at,
            "metrics": [
                {
                    **one._asdict(),
                    "strongest": [{"device": str(device), "correlation": value} for device, value in one.strongest],
                }
                for one in self.found
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        low, high = self.spread
        yield f"{self.run}: a step took {self.step_s:.3g} s, {low:.3g} to {high:.3g} s in nine of ten windows"
        yield f"{self.looked_at} series over {format_duration(self.stop - self.start)}, in {self.windows} windows of {self.window_s:g} s"
        if not self.found:
            yield "no metric moved with it more than chance would have it"
            return
        yield "moved with the time of a step, the strongest first (+: higher where steps took longer):"
        for one in self.found:
            when = f"{abs(one.lag_s):g} s {'before' if one.lag_s > 0 else 'after'}" if one.lag_s else "at once"
            who = ", ".join(f"{device} {value:+.2f}" for device, value in one.strongest[:3])
            yield f"  {one.strength:+.2f}  {one.metric} ({one.group}), {when}, {one.devices} of {one.of}: {who}"
        yield "what moves together need not be cause and effect: look at what moved first, and on which node"


def correlations_of(run: Run, start: float | None = None, stop: float | None = None) -> Correlations:
    """Return what moved with the time of a step.

    Args:
        start, stop: the stretch, UTC seconds; all of the run, or its newest two days, where they are not given.

    Raises:
        UsageError: ranks logged no steps, or too few to say anything.
    """
    names = [name for name in run.logged() if not name.startswith(_RESERVED)]
    tables = run.events(names)
    rows = max((table for table in tables.values()), key=lambda table: int((table["step"] >= 0).sum()), default=None)
    if rows is None or not (rows["step"] >= 0).any():
        raise UsageError("no rank logged a step", given=run.id, allowed=_LOG, next=f"call {_LOG} once a step")
    times = rows["time"][rows["step"] >= 0]
    first = float(times.min()) if start is None else max(start, float(times.min()))
    last = float(times.max()) if stop is None else min(stop, float(times.max()))
    window_s = windows_of(last - first)
    first = max(first, last - _MOST_WINDOWS * window_s)
    first -= first % window_s
    windows = max(0, int((last - first) // window_s))
    target = step_seconds(rows, first, window_s, windows)
    if not enough(target):
        least = format_duration(LEAST_WINDOWS * window_s)
        raise UsageError(
            "steps were logged for too short a time, or all took the same", given=run.id, allowed=f"{least} or more"
        )
    found, series = _search(run, target, first, window_s)
    known = target[np.isfinite(target)]
    spread = (float(np.quantile(known, 0.05)), float(np.quantile(known, 0.95)))
    return Correlations(
        run.id,
        first,
        first + windows * window_s,
        window_s,
        windows,
        float(np.median(known)),
        spread,
        series,
        found,
        target,
    )


def curves_of(run: Run, view: Correlations) -> dict[str, Any]:
    """Return what charts of it show: the time of a step, and of the strongest metrics the device that went with it most.

    As they were compared: the highest and lowest 2 % are clipped. The answer has `times` (of each point's middle), `step_s`, and `metrics[{group, metric, unit, device, values}]`; null: not known.
    """
    every = max(1, -(-view.windows // _MOST_POINTS))
    metrics = []
    for one in view.found[:_MOST_CURVES]:
        grid = run.grid(one.group, [one.metric], view.start, view.stop, every=int(view.window_s))
        values = _aligned(grid.times, grid.values[0], view.start, view.window_s, view.windows)
        device = one.strongest[0][0]
        at = list(grid.devices).index(device)
        curve = _points(clipped(values[:, [at]])[:, 0], every)
        metrics.append(
            {"group": one.group, "metric": one.metric, "unit": one.unit, "device": str(device), "values": curve}
        )
    middle = every * view.window_s / 2
    return {
        "times": [view.start + at * view.window_s + middle for at in range(0, view.windows, every)],
        "step_s": _points(clipped(view.step_times[:, None])[:, 0], every),
        "metrics": metrics,
    }


def _points(values: np.ndarray, every: int) -> list[float | None]:
    """Return the means of so many windows at a time, None where none is known."""
    found = []
    for at in range(0, len(values), every):
        part = values[at : at + every]
        known = part[np.isfinite(part)]
        found.append(float(known.mean()) if len(known) else None)
    return found


def _search(run: Run, target: np.ndarray, first: float, window_s: float) -> tuple[tuple[MovedMetric, ...], int]:
    most_lag = int(min(_MOST_LAG_S // window_s, len(target) // 8))
    stop = first + len(target) * window_s
    results, series = [], 0
    for group in run.groups():
        for metric in run.metrics(group):
            grid = run.grid(group, [metric], first, stop, every=int(window_s))
            values = _aligned(grid.times, grid.values[0], first, window_s, len(target))
            series += values.shape[1]
            about = (group, metric, grid.units.get(metric, ""))
            results.append((lagged(target, values, most_lag), grid.devices, about))
    least = least_z(series * (2 * most_lag + 1))
    found = [one for result, devices, about in results if (one := moved(result, devices, least, window_s, about))]
    return tuple(sorted(found, key=lambda one: (-abs(one.strength), -one.devices, one.metric))), series


def _aligned(times: np.ndarray, values: np.ndarray, first: float, window_s: float, windows: int) -> np.ndarray:
    """Return values [window, device] where each window has its own row; NaN where nothing was measured."""
    found = np.full((windows, values.shape[1]), np.nan, np.float32)
    at = np.round((times - first) / window_s).astype(int)
    good = (at >= 0) & (at < windows)
    found[at[good]] = values[good]
    return found
