"""What rules ask about: means over windows of what devices, their ranks and their nodes did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cordee.systems.score.identity import Levels
from cordee.systems.score.result import Caps
from cordee.systems.score.windows import WindowCut
from cordee.telemetry.node.catalogue import WHOLE_MACHINE

if TYPE_CHECKING:
    from cordee.systems.score.trace.model import HostSamples, ScoreTrace

_MB = 1e-6
_FASTEST_PCIE = 63e9
_STILL_MB = 0.01
_ALL_IDLE = 0.05
_WAYS = ("receive", "transmit")
_IN_USE, _RESTS = 0.9, 0.03
# By name: unit and meaning. Ratios are 0-1.
FEATURES = {
    "graphics": ("ratio", "time in which the device worked; of cores: time in which at least one did"),
    "sm": ("ratio", "SMs (or cores) at work, times time"),
    "P": (
        "ratio",
        "the busiest pipe over its cap, not known without the tensor pipe; of cores instructions per cycle over theirs",
    ),
    "D": ("ratio", "memory bandwidth of the GPU over its cap"),
    "SOL": ("ratio", "how near to the roof: min(1, max(P, D))"),
    "occupancy": ("ratio", "warps that SMs held, of the most they can hold"),
    "tensor": ("ratio", "tensor pipe"),
    "fp64": ("ratio", "fp64 pipe"),
    "fp32": ("ratio", "fp32 pipe"),
    "fp16": ("ratio", "fp16 pipe, no tensor cores"),
    "dram": ("ratio", "memory interface, not scaled by a cap"),
    "X": ("ratio", "bytes to or from the CPU's memory over PCIe or C2C, of what that link can carry one way"),
    "N": ("ratio", "bytes to or from other GPUs over NVLink or XGMI, of what those links can carry one way"),
    "memory": ("ratio", "memory in use"),
    "clock": ("ratio", "clock of the SMs over its maximum"),
    "power": ("watts", "power"),
    "temperature": ("celsius", "temperature"),
    "thermal": ("ratio", "time with clocks held down by heat"),
    "capped": ("ratio", "time with clocks held down by a cap of power"),
    "cpu": (
        "ratio",
        "cores in use of the device's ranks, of those that they have, or of the worker processes that they run",
    ),
    "thr": ("ratio", "busiest thread of the device's ranks"),
    "queued": (
        "ratio",
        "time in which the device's ranks were ready to run and had no core; of the process that waited most",
    ),
    "processes": ("processes", "processes of the device's ranks"),
    "reading": ("MB/s", "read from storage by the device's ranks"),
    "writing": ("MB/s", "written to storage by the device's ranks; by any rank while all devices rest"),
    "io": (
        "ratio",
        "time in which a task of the job on this node waited for storage; not measured where only the whole machine tells it and the ranks read and wrote nothing",
    ),
    "starved": ("ratio", "time in which a task of the job, or of the whole node, waited for a CPU"),
    "network": ("MB/s", "the greater of sent and received over all networks of the node"),
    "data_wait": ("ratio", "time in which the ranks waited for data, where they log `data_wait_s`"),
    "standstill": (
        "seconds",
        "length of the stretch around the window in which the device runs kernels while pipes, memory and links rest; 0: they do not",
    ),
    "gpus": ("devices", "devices of the job"),
    "ranks": ("ranks", "ranks of the job"),
}


@dataclass(frozen=True)
class _Reader:
    """Reads means over windows of metrics, around one trace and its windows."""

    trace: ScoreTrace
    cut: WindowCut

    def device(self, metric: str) -> np.ndarray | None:
        values = self.trace.load(metric)
        return None if values is None else self.cut.mean(values)

    def around(self, surroundings: HostSamples | None, metric: str) -> np.ndarray | None:
        values = None if surroundings is None else surroundings.load(metric)
        return None if values is None else self.cut.mean(values)


def window_features(trace: ScoreTrace, levels: Levels, caps: Sequence[Caps], cut: WindowCut) -> dict[str, np.ndarray]:
    """Return float32 [window, device] by feature; those that nobody measured are left out.

    Args:
        levels: the trace's, with `caps` of each device.
    """
    reader = _Reader(trace, cut)
    found: dict[str, np.ndarray | None] = {
        "graphics": cut.mean(levels.graphics),
        "sm": None if "breadth" in levels.assumed and trace.kind == "gpu" else cut.mean(levels.sm),
        "SOL": None if "depth" in levels.assumed and trace.kind == "gpu" else cut.mean(levels.sol),
        "P": None if levels.pipe is None or "tensor pipe" in levels.lacking else cut.mean(levels.pipe),
        "D": None if levels.dram is None else cut.mean(levels.dram),
    }
    if trace.kind == "gpu":
        found.update(_of_gpus(reader, caps) | levels.means)
        found["standstill"] = _standstill(found, cut)
    found.update(_of_ranks(reader, found["graphics"]))
    found.update(_of_nodes(reader))
    found["io"] = _own_waits(trace, found)
    found["data_wait"] = _data_wait(reader)
    shape = (cut.windows, len(trace.devices))
    found["gpus"] = np.full(shape, max(len(trace.devices), trace.job.allocated or 0), dtype=np.float32)
    found["ranks"] = np.full(shape, trace.job.world_size or len({rank for d in trace.devices for rank in d.ranks}))
    return {name: values.astype(np.float32) for name, values in found.items() if values is not None}


def _of_gpus(reader: _Reader, caps: Sequence[Caps]) -> dict[str, np.ndarray | None]:
    names = {
        "occupancy": "gpu_occupancy_ratio",
        "power": "gpu_power_watts",
        "temperature": "gpu_temperature_celsius",
        "thermal": "gpu_throttle_thermal_ratio",
        "capped": "gpu_throttle_power_ratio",
    }
    found = {feature: reader.device(metric) for feature, metric in names.items()}
    found["memory"] = _ratio(reader.device("gpu_memory_used_bytes"), _total_memory(reader))
    found["clock"] = _ratio(reader.device("gpu_clock_sm_hertz"), reader.device("gpu_clock_sm_max_hertz"))
    pcie = np.array([cap.links.get("pcie", _FASTEST_PCIE) for cap in caps])
    c2c = np.array([cap.links.get("c2c", np.nan) for cap in caps])
    nvlink = np.array([cap.links.get("nvlink", np.nan) for cap in caps])
    found["X"] = _greatest(_link(reader, "gpu_pcie", pcie), _link(reader, "gpu_c2c", c2c))
    found["N"] = _link(reader, "gpu_nvlink", nvlink)
    return found


def _standstill(found: dict[str, np.ndarray | None], cut: WindowCut) -> np.ndarray | None:
    """Return the seconds of the unbroken stretch around each window in which a device runs kernels that do nothing.

    NaN where pipes or memory were not measured and nothing else shows work.
    """
    graphics = found["graphics"]
    if graphics is None:
        return None
    rests = graphics >= _IN_USE
    for name in ("X", "N"):
        link = found[name]
        rests &= True if link is None else ~(link >= _RESTS)
    unknown = np.zeros(graphics.shape, dtype=bool)
    for name in ("P", "D"):
        values = found[name]
        unknown |= True if values is None else ~np.isfinite(values)
        rests &= True if values is None else ~(values >= _RESTS)
    seconds = np.zeros(graphics.shape)
    for window in range(len(seconds)):
        before = seconds[window - 1] if window else 0.0
        seconds[window] = np.where(rests[window], before + cut.length_s, 0.0)
    for window in range(len(seconds) - 2, -1, -1):
        goes_on = rests[window] & rests[window + 1]
        seconds[window] = np.where(goes_on, seconds[window + 1], seconds[window])
    seconds[~np.isfinite(graphics) | (rests & unknown)] = np.nan
    return seconds


def _of_ranks(reader: _Reader, graphics: np.ndarray | None) -> dict[str, np.ndarray | None]:
    """Return what the ranks of each device did: cores and traffic are summed, of threads the busiest counts."""
    rank = reader.trace.rank
    if rank is None:
        return {}
    place = {key: at for at, key in enumerate(rank.keys)}
    columns = [[place[str(of)] for of in device.ranks if str(of) in place] for device in reader.trace.devices]
    columns = _or_whole_node(reader.trace, rank, columns)

    def summed(metric: str) -> np.ndarray | None:
        return _over(reader.around(rank, metric), columns, np.nansum)

    used, cores = summed("cpu_cores_ratio"), summed("cpu_share_cores")
    processes = summed("processes")
    cpu = _ratio(used, cores)
    if used is not None and processes is not None:
        workers = np.where(processes >= 3, used / np.maximum(processes - 1, 1), np.nan)
        cpu = _greatest(cpu, workers) if cpu is not None else None
    written = reader.around(rank, "io_write_bytes_per_second")
    writing = _over(written, columns, np.nansum)
    if written is not None and writing is not None and graphics is not None:
        everywhere = np.nansum(written, axis=1, keepdims=True)
        rests = (np.nan_to_num(graphics, nan=1.0) < _ALL_IDLE).all(axis=1, keepdims=True)
        writing = np.where(rests, np.fmax(writing, everywhere), writing)
    return {
        "cpu": None if cpu is None else np.minimum(cpu, 1.0),
        "thr": _over(reader.around(rank, "thread_busiest_ratio"), columns, np.nanmax),
        "queued": _over(reader.around(rank, "cpu_queued_ratio"), columns, np.nanmax),
        "processes": processes,
        "reading": _times(summed("io_read_bytes_per_second"), _MB),
        "writing": _times(writing, _MB),
    }


def _of_nodes(reader: _Reader) -> dict[str, np.ndarray | None]:
    node = reader.trace.node
    if node is None:
        return {}
    place = {node.node_of.get(key, key): at for at, key in enumerate(node.keys)}
    columns = [[place[device.node]] if device.node in place else [] for device in reader.trace.devices]

    def of_node(metric: str) -> np.ndarray | None:
        return _over(reader.around(node, metric), columns, np.nansum)

    ways = [
        _added(of_node(f"network_{way}_bytes_per_second"), of_node(f"fabric_{way}_bytes_per_second")) for way in _WAYS
    ]
    return {
        "io": of_node("pressure_io_ratio"),
        "starved": of_node("pressure_cpu_ratio"),
        "network": _times(_greatest(*ways), _MB),
    }


def _own_waits(trace: ScoreTrace, found: dict[str, np.ndarray | None]) -> np.ndarray | None:
    """Return the waits for storage that may be the job's: on a node that tells only those of the whole machine they are
    somebody else's, and so not measured, while the device's ranks read and wrote nothing.
    """
    io, reading, writing = (found.get(name) for name in ("io", "reading", "writing"))
    if io is None or reading is None or writing is None:
        return io
    nodes = trace.facts.get("node", {})
    told_of = [nodes.get(of.node, {}).get("devices", {}).get(of.node, {}).get("pressure_of") for of in trace.devices]
    shared = np.array([of == WHOLE_MACHINE for of in told_of])
    return np.where(shared & (reading + writing < _STILL_MB), np.nan, io)


def _data_wait(reader: _Reader) -> np.ndarray | None:
    """Return the share of time in which ranks waited for data, the same for all devices; None where they do not log it."""
    logged = reader.trace.logged.get("data_wait_s")
    if logged is None or not len(logged.times):
        return None
    ranks = max(1, int(reader.trace.facts.get("logged_ranks", {}).get("data_wait_s", 1)))
    cut = reader.cut
    at = np.floor((logged.times - cut.starts[0]) / cut.length_s).astype(np.int64)
    inside = (at >= 0) & (at < cut.windows) & np.isfinite(logged.values)
    waited = np.bincount(at[inside], weights=logged.values[inside], minlength=cut.windows)
    share = np.minimum(1.0, waited / (cut.length_s * ranks))
    return np.repeat(share[:, None], len(reader.trace.devices), axis=1)


def _or_whole_node(trace: ScoreTrace, rank: HostSamples, columns: list[list[int]]) -> list[list[int]]:
    """Give a device whose ranks nobody knows, or nobody sampled, all ranks of its node."""
    of_node: dict[str, list[int]] = {}
    for at, key in enumerate(rank.keys):
        of_node.setdefault(rank.node_of.get(key, ""), []).append(at)
    return [column or of_node.get(device.node, []) for device, column in zip(trace.devices, columns, strict=True)]


def _total_memory(reader: _Reader) -> np.ndarray | None:
    total = reader.device("gpu_memory_total_bytes")
    given = np.array([device.memory_bytes or np.nan for device in reader.trace.devices])
    if total is None:
        return np.repeat(given[None, :], reader.cut.windows, axis=0) if np.isfinite(given).any() else None
    return np.where(np.isfinite(total), total, given[None, :])


def _link(reader: _Reader, name: str, peak: np.ndarray) -> np.ndarray | None:
    ways = [reader.device(f"{name}_{way}_bytes_per_second") for way in _WAYS]
    greater = _greatest(*ways)
    return None if greater is None else np.minimum(greater / peak[None, :], 1.0)


def _over(values: np.ndarray | None, columns: list[list[int]], how: object) -> np.ndarray | None:
    """Return [window, device] of [window, key], NaN where none of a device's keys was measured."""
    if values is None:
        return None
    result = np.full((len(values), len(columns)), np.nan)
    for at, column in enumerate(columns):
        if column:
            part = values[:, column]
            known = np.isfinite(part).any(axis=1)
            result[known, at] = how(part[known], axis=1)  # type: ignore[operator]
    return result


def _ratio(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    if one is None or other is None:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: np.ndarray = np.where(other > 0, one / other, np.nan)
    return ratio


def _greatest(*values: np.ndarray | None) -> np.ndarray | None:
    """Return the greatest of those that were measured."""
    known = [value for value in values if value is not None]
    return None if not known else np.asarray(np.fmax.reduce(known))


def _added(*values: np.ndarray | None) -> np.ndarray | None:
    """Return the sum of those that were measured, NaN where none was."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    stack = np.stack(known)
    return np.where(np.isnan(stack).all(axis=0), np.nan, np.nansum(stack, axis=0))


def _times(values: np.ndarray | None, factor: float) -> np.ndarray | None:
    return None if values is None else values * factor
