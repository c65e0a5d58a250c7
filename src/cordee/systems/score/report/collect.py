"""What a page draws, read metric by metric: nothing but the small results is held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cordee.systems.score.report.reduce import PlotLayout, Reduced, device_keys, layout, reduce_values
from cordee.systems.score.result import Saturation
from cordee.systems.score.trace import cores
from cordee.systems.score.trace.model import HostSamples, ScoreTrace
from cordee.telemetry.node.catalogue import GPU, NODE, RANK, Metric

if TYPE_CHECKING:
    import numpy as np

SECTIONS = (
    ("compute", ("gpu_graphics", "gpu_utilization", "gpu_sm", "gpu_occupancy", "gpu_tensor", "gpu_fp")),
    ("memory", ("gpu_dram", "gpu_memory")),
    ("links", ("gpu_pcie", "gpu_c2c", "gpu_nvlink")),
    ("power and clocks", ("gpu_power", "gpu_clock", "gpu_temperature", "gpu_throttle")),
    ("other", ("",)),
)
# They stand at the top of a page.
MAIN = (
    *("gpu_graphics_ratio", "gpu_sm_ratio", "gpu_tensor_ratio", "gpu_dram_ratio", "gpu_power_watts"),
    *("gpu_utilization_ratio", cores.GRAPHICS, cores.SM),
)
# What is scored of cores; their mean over a node's cores needs no source of its own.
CORES = (
    Metric(cores.GRAPHICS, "ratio", "Time in which at least one of the job's cores worked."),
    Metric(cores.SM, "ratio", "Cores that worked, of those that the job held."),
    Metric(cores.SOL, "instructions", "Instructions per cycle of the cores that worked."),
)
_CONSTANT = ("gpu_memory_total_bytes", "gpu_clock_sm_max_hertz", "memory_total_bytes")
_UNITS = {"hertz": ("GHz", 1e-9), "watts": ("W", 1.0), "celsius": ("°C", 1.0)}
_TITLES = {
    "gpu_graphics_ratio": "time in use (a kernel on the GPU)",
    "gpu_sm_ratio": "SMs at work",
    "gpu_tensor_ratio": "tensor pipe",
    "gpu_dram_ratio": "memory bandwidth in use",
    "gpu_occupancy_ratio": "occupancy (warps held)",
    "gpu_utilization_ratio": "utilization, coarse",
    "gpu_memory_busy_ratio": "memory busy, coarse",
    "cpu_cores_ratio": "cores in use",
    cores.GRAPHICS: "time in use (any core)",
    cores.SM: "held cores at work",
    cores.SOL: "instructions per cycle",
}


@dataclass
class MetricGroup:
    """The metrics of GPUs, cores, nodes or ranks; `keys` are their names in the order of the samples."""

    name: str
    keys: list[str]
    plan: PlotLayout
    metrics: dict[str, Reduced] = field(default_factory=dict)

    def get(self, name: str) -> Reduced | None:
        """Return a metric, None when it was not measured."""
        return self.metrics.get(name)


@dataclass
class Collected:
    """A scoring and what is drawn of its samples.

    Attributes:
        plan: of the devices that are scored.
        groups: by `gpu` or `cores`, `node`, `rank`; those that have samples.
        missing: (metric, why it was not measured).
    """

    saturation: Saturation
    trace: ScoreTrace
    plan: PlotLayout
    groups: dict[str, MetricGroup] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)

    def find(self, group: str, name: str) -> Reduced | None:
        """Return a metric of a group, None when either is not there."""
        there = self.groups.get(group)
        return there.get(name) if there else None


def collect(saturation: Saturation, trace: ScoreTrace) -> Collected:
    """Read and reduce all standard metrics of a trace, one at a time."""
    plan = layout(device_keys(trace.devices), trace.times, trace.cadence_s)
    found = Collected(saturation, trace, plan)
    told = dict(trace.missing)
    if trace.kind == "gpu":
        gpu = MetricGroup("gpu", [device.key for device in trace.devices], plan)
        _read(found, gpu, GPU, trace.load, told)
    else:
        _read(found, MetricGroup("cores", [device.key for device in trace.devices], plan), CORES, trace.load, told)
    for name, metrics, around in (("node", NODE, trace.node), ("rank", RANK, trace.rank)):
        if around is not None and around.keys:
            plan = layout(_surrounding_keys(name, around), trace.times, trace.cadence_s)
            _read(found, MetricGroup(name, list(around.keys), plan), metrics, around.load, told)
    known = {name for name, _ in found.missing}
    found.missing += [(name, reason) for name, reason in told.items() if name not in known and not _drawn(found, name)]
    return found


def title_of(metric: Reduced) -> str:
    """Return what a picture of a metric is called, with its unit where the axis does not say it."""
    words = _TITLES.get(metric.name)
    if words is None:
        words = metric.name.removeprefix("gpu_")
        for ending in ("_bytes_per_second", "_ratio", "_bytes", "_watts", "_hertz", "_celsius", "_cores"):
            words = words.removesuffix(ending)
        words = words.replace("_", " ").replace("sm", "SM") if words == "clock_sm" else words.replace("_", " ")
    return words if metric.unit in ("ratio", "bytes", "bytes/s") else f"{words} ({metric.unit})"


def kind_of(metric: Reduced) -> str:
    """Return how an axis shows a metric, as `cordee.core.draw.axes.tick_text` names it."""
    return {"ratio": "ratio", "bytes": "bytes", "bytes/s": "rate"}.get(metric.unit, "number")


def range_of(metric: Reduced) -> tuple[float, float]:
    """Return what the darkest and the brightest colour stand for: 0-1 for shares, so that jobs can be compared."""
    import numpy as np

    if metric.unit == "ratio":
        return 0.0, 1.0
    known = metric.cells[np.isfinite(metric.cells)]
    low = float(known.min()) if metric.unit in ("GHz", "°C") else 0.0
    high = float(known.max())
    return (low, high) if high > low else (low, low + 1)


def section_of(name: str) -> str:
    """Return the section that a metric of GPUs stands in."""
    return next(title for title, starts in SECTIONS if name.startswith(starts))


def _read(
    found: Collected,
    group: MetricGroup,
    metrics: tuple[Metric, ...],
    load: Callable[[str], np.ndarray | None],
    told: dict[str, str],
) -> None:
    for metric in metrics:
        values = load(metric.name) if len(group.plan.bins) else None
        if values is not None:
            small = reduce_values(metric.name, metric.unit, values, group.plan)
            del values
            if small.measured:
                group.metrics[metric.name] = _scaled(small)
                continue
            reason = "no device gave a number"
        else:
            reason = "not among what this source measures"
        found.missing.append((metric.name, told.get(metric.name, reason)))
    if group.metrics:
        found.groups[group.name] = group


def is_constant(name: str) -> bool:
    """Return whether a metric is a size of the hardware, of which no picture is drawn."""
    return name in _CONSTANT


def _scaled(metric: Reduced) -> Reduced:
    if metric.unit not in _UNITS:
        return metric
    unit, factor = _UNITS[metric.unit]
    names = ("cells", "bands", "mean_over", "total", "means", "most")
    return replace(metric, unit=unit, **{name: getattr(metric, name) * factor for name in names})


def _drawn(found: Collected, name: str) -> bool:
    return any(name in group.metrics for group in found.groups.values())


def _surrounding_keys(name: str, around: HostSamples) -> list[tuple[str, int, str]]:
    if name == "node":
        return [(key, 0, key) for key in around.keys]
    return [(around.node_of.get(key, ""), int(key) if key.isdigit() else 0, f"rank {key}") for key in around.keys]
