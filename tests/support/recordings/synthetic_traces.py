"""Traces of jobs that never ran, for reports, comparisons and benchmarks: known phases, noise, holes. Never measured."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cordee.systems.score.trace.model import HostSamples, ScoredDevice, ScoredJob, ScoreTrace

if TYPE_CHECKING:
    import numpy as np

START = 1_800_000_000.0
MODEL = "Synthetic GPU 80GB"
_GB = 1e9
_PEAK = {
    "gpu_power_watts": 700.0,
    "gpu_clock_sm_hertz": 1.98e9,
    "gpu_clock_sm_max_hertz": 1.98e9,
    "gpu_memory_used_bytes": 80 * _GB,
    "gpu_memory_total_bytes": 80 * _GB,
    "gpu_temperature_celsius": 80.0,
    "memory_used_bytes": 500 * _GB,
    "memory_total_bytes": 500 * _GB,
    "cpu_power_watts": 500.0,
    "cpu_cores_ratio": 16.0,
    "cpu_share_cores": 16.0,
    "memory_rss_bytes": 60 * _GB,
}
_STEADY = {"gpu_memory_used_bytes": 0.7, "gpu_clock_sm_hertz": 0.95, "memory_used_bytes": 0.4, "memory_rss_bytes": 0.5}
_FULL = ("gpu_memory_total_bytes", "gpu_clock_sm_max_hertz", "memory_total_bytes", "cpu_share_cores")

# Levels (0-1 of the metric's peak) by what the job does; what is not named is nearly nothing.
LEVELS: dict[str, dict[str, float]] = {
    "compute": {
        "gpu_graphics_ratio": 0.98, "gpu_sm_ratio": 0.95, "gpu_occupancy_ratio": 0.4, "gpu_tensor_ratio": 0.8,
        "gpu_tensor_hmma_ratio": 0.8, "gpu_dram_ratio": 0.4, "gpu_power_watts": 0.93, "gpu_temperature_celsius": 0.8,
        "cpu_busy_ratio": 0.2, "cpu_cores_ratio": 0.2, "thread_busiest_ratio": 0.7, "gpu_utilization_ratio": 0.99,
    },
    "memory": {
        "gpu_graphics_ratio": 0.97, "gpu_sm_ratio": 0.93, "gpu_occupancy_ratio": 0.6, "gpu_tensor_ratio": 0.08,
        "gpu_fp32_ratio": 0.1, "gpu_dram_ratio": 0.77, "gpu_power_watts": 0.7, "gpu_temperature_celsius": 0.7,
        "cpu_busy_ratio": 0.2, "cpu_cores_ratio": 0.2, "thread_busiest_ratio": 0.7, "gpu_utilization_ratio": 0.99,
    },
    "input": {
        "gpu_graphics_ratio": 0.3, "gpu_sm_ratio": 0.26, "gpu_occupancy_ratio": 0.12, "gpu_tensor_ratio": 0.15,
        "gpu_dram_ratio": 0.12, "gpu_power_watts": 0.35, "gpu_temperature_celsius": 0.5, "cpu_busy_ratio": 0.96,
        "cpu_cores_ratio": 0.95, "thread_busiest_ratio": 0.8, "pressure_cpu_ratio": 0.5, "gpu_utilization_ratio": 0.4,
    },
    "communication": {
        "gpu_graphics_ratio": 0.97, "gpu_sm_ratio": 0.24, "gpu_occupancy_ratio": 0.1, "gpu_tensor_ratio": 0.06,
        "gpu_dram_ratio": 0.1, "gpu_power_watts": 0.45, "gpu_temperature_celsius": 0.55, "cpu_busy_ratio": 0.3,
        "gpu_nvlink_transmit_bytes_per_second": 0.3, "gpu_nvlink_receive_bytes_per_second": 0.3,
        "fabric_transmit_bytes_per_second": 0.7, "fabric_receive_bytes_per_second": 0.7, "cpu_cores_ratio": 0.3,
        "gpu_utilization_ratio": 0.99,
    },
    "checkpoint": {
        "gpu_graphics_ratio": 0.005, "gpu_sm_ratio": 0.003, "gpu_power_watts": 0.18, "gpu_temperature_celsius": 0.4,
        "io_write_bytes_per_second": 0.8, "cpu_busy_ratio": 0.1, "cpu_cores_ratio": 0.07,
    },
    "idle": {"gpu_power_watts": 0.14, "gpu_temperature_celsius": 0.35, "cpu_busy_ratio": 0.02},
}  # fmt: skip
PLAN = (("input", 0.25), ("compute", 0.4), ("checkpoint", 0.05), ("memory", 0.15), ("communication", 0.15))

GPU_METRICS = tuple(
    "gpu_" + name
    for name in (
        "graphics_ratio", "sm_ratio", "occupancy_ratio", "tensor_ratio", "tensor_hmma_ratio", "fp64_ratio",
        "fp32_ratio", "fp16_ratio", "dram_ratio", "pcie_transmit_bytes_per_second", "pcie_receive_bytes_per_second",
        "nvlink_transmit_bytes_per_second", "nvlink_receive_bytes_per_second", "memory_used_bytes",
        "memory_total_bytes", "power_watts", "clock_sm_hertz", "clock_sm_max_hertz", "temperature_celsius",
        "throttle_power_ratio",
    )
)  # fmt: skip
_NODE_METRICS = (
    "cpu_busy_ratio", "memory_used_bytes", "memory_total_bytes", "network_receive_bytes_per_second",
    "network_transmit_bytes_per_second", "fabric_receive_bytes_per_second", "fabric_transmit_bytes_per_second",
    "pressure_cpu_ratio", "pressure_io_ratio", "cpu_power_watts",
)  # fmt: skip
_RANK_METRICS = (
    "cpu_cores_ratio", "cpu_share_cores", "memory_rss_bytes", "io_read_bytes_per_second", "io_write_bytes_per_second",
    "thread_busiest_ratio",
)  # fmt: skip


@dataclass(frozen=True)
class Synthetic:
    """A job that never ran.

    Attributes:
        plan: what it does, as (key of `LEVELS`, share of the time).
        noise: standard deviation of each sample, of the peak.
        slow: factor on the load of a device, by its position.
        silent: positions of devices without any sample.
        absent: metrics that nobody measured, with the reason.
    """

    name: str = "synthetic"
    nodes: int = 2
    per_node: int = 4
    seconds: int = 600
    cadence_s: float = 1.0
    plan: Sequence[tuple[str, float]] = PLAN
    noise: float = 0.02
    seed: int = 0
    slow: Mapping[int, float] = field(default_factory=dict)
    silent: Sequence[int] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    metrics: Sequence[str] = GPU_METRICS
    model: str = MODEL

    def trace(self) -> ScoreTrace:
        """Return its trace; values are made when they are loaded, always the same."""
        import numpy as np

        names = tuple(f"node{at:04d}" for at in range(self.nodes))
        devices = [
            ScoredDevice(f"GPU-{node}-{at}", node, at, self.model, (position * self.per_node + at,), _PEAK["gpu_memory_total_bytes"])
            for position, node in enumerate(names)
            for at in range(self.per_node)
        ]  # fmt: skip
        ranks = tuple(str(rank) for rank in range(len(devices)))
        node_of = {rank: device.node for rank, device in zip(ranks, devices, strict=True)}
        times = START + np.arange(round(self.seconds / self.cadence_s)) * self.cadence_s
        return ScoreTrace(
            job=ScoredJob(
                self.name, "python train.py --config <synthetic>", "4711", "someone", "finished", 0,
                START, START + self.seconds, len(devices), names, len(devices), 0.93,
            ),
            kind="gpu",
            source="replay",
            cadence_s=self.cadence_s,
            times=times,
            devices=devices,
            load=self._loader(self.metrics, len(devices)),
            node=HostSamples(names, {name: name for name in names}, self._loader(_NODE_METRICS, self.nodes)),
            rank=HostSamples(ranks, node_of, self._loader(_RANK_METRICS, len(ranks))),
            missing=dict(self.absent),
            remarks=["These samples were made up by support.recordings.synthetic_traces; nothing was measured."],
        )  # fmt: skip

    def levels(self, metric: str) -> np.ndarray:
        """Return float32 [time] of a metric, before noise and factors, 0-1 of its peak."""
        import numpy as np

        count = round(self.seconds / self.cadence_s)
        ends = np.cumsum([share for _, share in self.plan]) / sum(share for _, share in self.plan)
        what = np.searchsorted(ends, (np.arange(count) + 0.5) / max(1, count)).clip(0, len(self.plan) - 1)
        if metric in _FULL:
            return np.ones(count, np.float32)
        known = [LEVELS[name].get(metric, _STEADY.get(metric, 0.002)) for name, _ in self.plan]
        levels: np.ndarray = np.array(known, np.float32)[what]
        return levels

    def _loader(self, metrics: Sequence[str], count: int) -> Callable[[str], np.ndarray | None]:
        def load(name: str) -> np.ndarray | None:
            import numpy as np

            if name not in metrics or name in self.absent:
                return None
            level = self.levels(name)[:, None]
            if name in _FULL:
                values = np.repeat(level, count, axis=1)
            else:
                random = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
                values = random.standard_normal((len(level), count), dtype=np.float32) * np.float32(self.noise)
                values *= np.minimum(1, level * 5)
                values += level
                for at, factor in self.slow.items():
                    values[:, at % count] *= factor
                np.clip(values, 0, 1, out=values)
            values *= np.float32(_PEAK.get(name, 25 * _GB if name.endswith("per_second") else 1.0))
            for at in self.silent:
                if count > at and name.startswith("gpu_"):
                    values[:, at] = np.nan
            return values

        return load
