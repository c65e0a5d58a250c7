"""Compute, memory, network, storage and power of a whole job over time: what a reader looks at first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cordee.core.draw.charts import ChartLine, Plot, line_chart
from cordee.systems.score.report.collect import Collected

if TYPE_CHECKING:
    import numpy as np

_TWO_WAY = ("gpu_pcie", "gpu_c2c", "gpu_nvlink")


class _Source(NamedTuple):
    """One line: its name, the group and the metrics whose means (or sums) it adds up."""

    name: str
    group: str
    metrics: tuple[str, ...]


_COMPUTE = (
    _Source("any core in use", "cores", ("cores_in_use_ratio",)),
    _Source("held cores busy", "cores", ("cores_busy_ratio",)),
    _Source("GPU in use", "gpu", ("gpu_graphics_ratio",)),
    _Source("GPU in use (coarse)", "gpu", ("gpu_utilization_ratio",)),
    _Source("SMs at work", "gpu", ("gpu_sm_ratio",)),
    _Source("tensor pipe", "gpu", ("gpu_tensor_ratio",)),
    _Source("fp32 pipe", "gpu", ("gpu_fp32_ratio",)),
    _Source("fp64 pipe", "gpu", ("gpu_fp64_ratio",)),
    _Source("CPUs busy", "node", ("cpu_busy_ratio",)),
)
_WAITING = (
    _Source("for a CPU", "node", ("pressure_cpu_ratio",)),
    _Source("for memory", "node", ("pressure_memory_ratio",)),
    _Source("for storage", "node", ("pressure_io_ratio",)),
    _Source("stopped by a CPU quota", "node", ("cpu_throttled_ratio",)),
)
_NETWORK = (
    *(
        _Source(
            name, "gpu", (f"{start}_transmit_bytes_per_second", f"{start}_receive_bytes_per_second")
        )
        for name, start in zip(("PCIe", "C2C", "NVLink"), _TWO_WAY, strict=True)
    ),
    _Source("fabric", "node", ("fabric_receive_bytes_per_second", "fabric_transmit_bytes_per_second")),
    _Source("IP", "node", ("network_receive_bytes_per_second", "network_transmit_bytes_per_second")),
)  # fmt: skip
_STORAGE = (
    _Source("read by ranks", "rank", ("io_read_bytes_per_second",)),
    _Source("written by ranks", "rank", ("io_write_bytes_per_second",)),
    _Source("local disks, read", "node", ("disk_read_bytes_per_second",)),
    _Source("local disks, written", "node", ("disk_write_bytes_per_second",)),
)
_POWER = (
    _Source("GPUs", "gpu", ("gpu_power_watts",)),
    _Source("CPUs", "node", ("cpu_power_watts",)),
    _Source("nodes", "node", ("node_power_watts",)),
)
_CORES = (_Source("cores in use", "rank", ("cpu_cores_ratio",)), _Source("cores held", "rank", ("cpu_share_cores",)))


def together(found: Collected) -> list[Plot]:
    """Return charts of what was measured of compute, memory, network, storage, waiting and power, all devices together."""
    made = [
        ("compute: mean over the devices", _means(found, _COMPUTE), "ratio"),
        ("cores of all ranks", _sums(found, _CORES), "number"),
        ("memory: bandwidth, and how full", _memory(found), "ratio"),
        ("network: sum over the job, both ways", _sums(found, _NETWORK), "rate"),
        ("storage: sum over the job", _sums(found, _STORAGE), "rate"),
        ("waiting: share of the time, mean over nodes", _means(found, _WAITING), "ratio"),
        ("power: sum over the job (W)", _sums(found, _POWER), "number"),
    ]
    return [_plot(*one) for one in made if one[1]]


def _plot(title: str, lines: list[ChartLine], kind: str) -> Plot:
    """Return a chart; its title names its only line, which has no legend then."""
    title = title if len(lines) > 1 else f"{title}: {lines[0].name}"
    return Plot(title, line_chart(title, lines, x_label="s", y_kind=kind, zero=True))


def _means(found: Collected, sources: Sequence[_Source]) -> list[ChartLine]:
    lines = []
    for source in sources:
        metric = found.find(source.group, source.metrics[0])
        if metric is not None:
            lines.append(_line(found, source, metric.mean_over))
    return lines


def _sums(found: Collected, sources: Sequence[_Source]) -> list[ChartLine]:
    lines = []
    for source in sources:
        measured = [metric for name in source.metrics if (metric := found.find(source.group, name)) is not None]
        if measured:
            lines.append(_line(found, source, sum((metric.total for metric in measured[1:]), measured[0].total)))
    return lines


def _memory(found: Collected) -> list[ChartLine]:
    lines = _means(found, (_Source("bandwidth in use", "gpu", ("gpu_dram_ratio",)),))
    for name, group, used, total in (
        ("GPU memory full", "gpu", "gpu_memory_used_bytes", "gpu_memory_total_bytes"),
        ("nodes' memory full", "node", "memory_used_bytes", "memory_total_bytes"),
    ):
        above, below = found.find(group, used), found.find(group, total)
        if above is not None and below is not None and (below.means > 0).any():
            lines.append(_line(found, _Source(name, group, ()), above.mean_over / below.mean_over))
    return lines


def _line(found: Collected, source: _Source, values: np.ndarray) -> ChartLine:
    seconds = found.groups[source.group].plan.seconds
    return ChartLine(source.name, seconds.tolist(), values.astype(float).tolist())
