"""What the live view shows of samples: rows over all devices, what stands out, ranks that differ, stages."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CordeeError
from cordee.core.stats import outliers
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.catalogue import METRICS
from cordee.telemetry.store.placement import placement, sizes_of
from cordee.telemetry.store.reader import Run

if TYPE_CHECKING:
    import numpy as np

# Title, and what is shown under it: of each alternative that which was measured first.
RESOURCES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("GPU: SMs", (("gpu", "gpu_sm_ratio"), ("gpu", "gpu_graphics_ratio"), ("gpu", "gpu_utilization_ratio"))),
    ("GPU: tensor", (("gpu", "gpu_tensor_ratio"),)),
    ("GPU: bandwidth", (("gpu", "gpu_dram_ratio"), ("gpu", "gpu_memory_busy_ratio"))),
    ("GPU: memory", (("gpu", "gpu_memory_used_bytes"),)),
    ("GPU: NVLink", (("gpu", "gpu_nvlink_transmit_bytes_per_second"),)),
    ("power", (("gpu", "gpu_power_watts"), ("node", "node_power_watts"), ("node", "cpu_power_watts"))),
    ("CPU", (("rank", "cpu_cores_ratio"), ("node", "cpu_busy_ratio"))),
    ("host memory", (("rank", "memory_rss_bytes"), ("node", "memory_used_bytes"))),
    ("network in", (("node", "network_receive_bytes_per_second"),)),
    ("network out", (("node", "network_transmit_bytes_per_second"),)),
    ("fabric in", (("node", "fabric_receive_bytes_per_second"),)),
    ("fabric out", (("node", "fabric_transmit_bytes_per_second"),)),
    (
        "storage read",
        (
            ("node", "storage_read_bytes_per_second"),
            ("rank", "io_read_bytes_per_second"),
            ("node", "disk_read_bytes_per_second"),
        ),
    ),
    (
        "storage write",
        (
            ("node", "storage_write_bytes_per_second"),
            ("rank", "io_write_bytes_per_second"),
            ("node", "disk_write_bytes_per_second"),
        ),
    ),
    ("storage names", (("node", "storage_metadata_operations_per_second"),)),
    ("waits: CPU", (("node", "pressure_cpu_ratio"),)),
    ("waits: memory", (("node", "pressure_memory_ratio"),)),
    ("waits: storage", (("node", "pressure_io_ratio"),)),
)
HISTORY_S = 600.0
_RECENT_S = 15.0
_LATE_S = 5.0
_AHEAD_S = 60.0
_STAGES = ("pp", "tp", "dp", "ep", "cp")
_MOST_DIFFERING = 200
_DEVIATIONS = 5.0  # in units of the MAD: fewer are no outlier
_LEAST_PACE_S = 1.0
_LEARN_EVERY_S = 15.0
_SHARE_OF_A_CORE = 0.05


@dataclass
class SampleRow:
    """One metric over all devices of a group; NaN where nothing was measured.

    Attributes:
        history: means over the devices, by the moment of the sample, UTC epoch seconds.
        now: mean over the newest value of each device; low, high: the least and the greatest of them.
        mean: of the history.
        devices: how many were measured lately.
        far, far_value: the device whose last seconds are farthest from the median device's, and its mean over them.
        recent: those means, by device.
    """

    title: str
    group: str
    metric: str
    unit: str
    source: str
    history: dict[float, float] = field(default_factory=dict)
    now: float = math.nan
    low: float = math.nan
    high: float = math.nan
    devices: int = 0
    far: Any = None
    far_value: float = math.nan
    recent: dict[Any, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        known = [value for value in self.history.values() if math.isfinite(value)]
        return sum(known) / len(known) if known else math.nan

    def line(self, width: int) -> list[float]:
        """Return the history as at most so many values, each the mean of as many moments."""
        values = [self.history[moment] for moment in sorted(self.history)]
        each = max(1, -(-len(values) // max(1, width)))
        pieces = (values[at : at + each] for at in range(0, len(values), each))
        return [_mean([value for value in piece if math.isfinite(value)]) for piece in pieces]


@dataclass(frozen=True)
class Differing:
    """A rank that is unlike the others in one metric over the last seconds: its value and the median of all."""

    rank: int
    title: str
    unit: str
    value: float
    median: float
    deviations: float


@dataclass(frozen=True)
class Stage:
    """The ranks at one place of the layout's first dimension, and how the first row is over them."""

    name: str
    ranks: int
    title: str
    unit: str
    value: float


class NewestSamples:
    """The newest samples of a run, read further at each `read`: what it costs grows with the news, not with the run.

    Args:
        folder: the run's folder.

    Attributes:
        rows: of what was measured, in the order of `RESOURCES`.
        differing: ranks that differ from the others, each by what it differs in most, the farthest first.
        run: the reader, for pages that ask for more.
        trouble: why nothing more can be read, empty while all is well.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.run = Run(folder)
        self.rows: list[SampleRow] = []
        self.differing: list[Differing] = []
        self.trouble = ""
        self._newest: dict[str, tuple[float, float]] = {}  # by group: of the samples, and when that was seen, monotonic
        self._begun: set[str] = set()
        self._due = self._learn_at = 0.0
        self._done = False
        self._names: dict[str, str] = {}
        self._gpus: dict[str, list[int]] = {}
        self._places: dict[int, dict[str, Any]] = {}

    def read(self, began: float | None, *, ended: bool, now: bool = False) -> None:
        """Take in what is new, unless the last time was too little ago for its cost.

        Args:
            began: when the run started, UTC epoch seconds.
            ended: whether nothing more is written: then the rows are over the whole run.
            now: read in any case.
        """
        if self._done or (time.monotonic() < self._due and not now):
            return
        began_at, first = time.process_time(), not self.rows
        try:
            self._read(began, ended)
            self.trouble, self._done = "", ended
        except (CordeeError, OSError) as error:
            self.trouble = str(error).partition("\n")[0]
        spent_s = 0.0 if first else time.process_time() - began_at  # the first reads the history too
        self._due = time.monotonic() + max(_LEAST_PACE_S, spent_s / _SHARE_OF_A_CORE)

    def _read(self, began: float | None, ended: bool) -> None:
        known = {row.metric: row for row in self.rows}
        groups = {group.partition("-")[0]: group for group in self.run.groups()}
        measured = {group: self.run.metrics(group) for group in groups.values()}
        rows = []
        for title, choices in RESOURCES:
            for kind, metric in choices:
                about = measured.get(groups.get(kind, ""), {}).get(metric)
                if about is not None:
                    row = known.get(metric) or SampleRow(
                        title, groups[kind], metric, METRICS[metric].unit, about["source"]
                    )
                    rows.append(row)
                    break
        for group in dict.fromkeys(row.group for row in rows):
            self._read_group(group, [row for row in rows if row.group == group], began, ended)
        self.rows = [row for row in rows if row.history]
        if time.monotonic() >= self._learn_at:
            began_at = time.process_time()
            self._learn(groups)
            spent_s = time.process_time() - began_at
            self._learn_at = time.monotonic() + max(_LEARN_EVERY_S, spent_s / _SHARE_OF_A_CORE)
        self.differing = self._differing()

    def _read_group(self, group: str, rows: Sequence[SampleRow], began: float | None, ended: bool) -> None:
        import numpy as np

        for row in [row for row in rows if row.metric not in self._begun]:
            came = self._begin(row, began, ended)
            if came is not None:
                self._newest.setdefault(group, (came, time.monotonic()))
            if group in self._newest:  # else nothing of the group is there yet
                self._begun.add(row.metric)
        if group not in self._newest:
            return
        newest, at = self._newest[group]
        start = newest - _LATE_S
        stop = newest + time.monotonic() - at + _AHEAD_S
        grid = self.run.grid(group, [row.metric for row in rows], start - _RECENT_S, None if ended else stop)
        settled = _settled(np.isfinite(grid.values).any(axis=0)) if len(grid.times) else 0
        if not settled:
            return
        times, values = grid.times[:settled], grid.values[:, :settled]
        if float(times[-1]) > newest:
            self._newest[group] = float(times[-1]), time.monotonic()
        fresh = times >= start
        for row, of_row in zip(rows, values, strict=True):
            _extend(row, times[fresh], of_row[fresh], keep=math.inf if ended else HISTORY_S)
            _look(row, times, of_row, grid.devices)

    def _begin(self, row: SampleRow, began: float | None, ended: bool) -> float | None:
        """Read the history, of a run that continues the last minutes, and return the newest moment; None: there is none."""
        import numpy as np

        from cordee.telemetry.store.views import bands

        now = time.time()
        if not ended:
            start = max(now - HISTORY_S, began or 0.0)
            came = self._settled_until(row, start, now + _AHEAD_S, keep=True)
            if came is not None:
                return came
        # The whole run: it has ended, or is silent, or this machine's clock is not that of the nodes.
        seen = bands(self.run, row.group, row.metric, points=240)
        many = np.flatnonzero(seen.count > 0.5 * seen.count.max(initial=0.0))
        if not len(many):
            return None
        last = int(many[-1])
        row.history = _known(seen.times[: last + 1], seen.mean[: last + 1])
        return self._settled_until(row, float(seen.times[last]), float(seen.times[last]) + seen.cadence, keep=False)

    def _settled_until(self, row: SampleRow, start: float, stop: float, *, keep: bool) -> float | None:
        """Return the moment to which most devices have come between two; `keep` adds the means until then to the history."""
        import numpy as np

        grid = self.run.grid(row.group, [row.metric], start, stop)
        settled = _settled(np.isfinite(grid.values[0])) if len(grid.times) else 0
        if not settled:
            return None
        if keep:
            _extend(row, grid.times[:settled], grid.values[0][:settled], keep=HISTORY_S)
        return float(grid.times[settled - 1])

    def _learn(self, groups: Mapping[str, str]) -> None:
        """Learn which GPU belongs to which rank, and where ranks stand in the layout."""
        if "gpu" in groups:
            for node, about in self.run.facts("gpu").items():
                for device, facts in about["devices"].items():
                    self._names[device] = f"{node}:{facts.get('index', '?')}"
                    self._gpus[device] = [int(rank) for rank in facts.get("ranks") or []]
        if "rank" in groups:
            self._places = placement(self.run)
            for told in self.run.facts("rank").values():
                for rank, facts in told["devices"].items():
                    for device in facts.get("gpus") or []:
                        self._gpus[device] = [int(rank)]

    def name(self, row: SampleRow, device: Any) -> str:
        """Return what a device is called: `n-12:3` for a GPU, `rank 7`, or the node's name."""
        if device is None:
            return ""
        if row.group.startswith("rank"):
            return f"rank {device}"
        return self._names.get(str(device), str(device))

    def of_ranks(self, row: SampleRow) -> dict[int, float]:
        """Return a row's last seconds by rank: of a rank with several GPUs their mean; empty for rows of nodes."""
        if row.group.startswith("rank"):
            return {int(device): value for device, value in row.recent.items()}
        found: dict[int, list[float]] = {}
        for device, value in row.recent.items():
            for rank in self._gpus.get(str(device), ()):
                found.setdefault(rank, []).append(value)
        return {rank: _mean(values) for rank, values in found.items()}

    def usage(self, metric: str) -> dict[int, float]:
        """Return the last seconds of a rank metric by rank; empty when it is not shown."""
        return next((self.of_ranks(row) for row in self.rows if row.metric == metric), {})

    def _differing(self) -> list[Differing]:
        worst: dict[int, Differing] = {}
        for row in self.rows:
            values = self.of_ranks(row)
            for rank, found in outliers(values).items() if _may_differ(values) else ():
                before = worst.get(rank)
                if before is None or abs(found.z) > abs(before.deviations):
                    worst[rank] = Differing(rank, row.title, row.unit, found.value, found.median, found.z)
        ordered = sorted(worst.values(), key=lambda one: (-abs(one.deviations), one.rank))
        return ordered[:_MOST_DIFFERING]

    def stages(self) -> list[Stage]:
        """Return the first row by stage of the pipeline (else by the first dimension that is divided); empty without places."""
        sizes = sizes_of(self._places)
        names = [name for name in (*_STAGES, *sizes) if sizes.get(name, 1) > 1]
        row = next((row for row in self.rows if self.of_ranks(row)), None)
        if not names or row is None:
            return []
        values, members = self.of_ranks(row), dict[int, list[int]]()
        for rank, told in self._places.items():
            if names[0] in told["place"]:
                members.setdefault(told["place"][names[0]], []).append(rank)
        return [
            Stage(
                f"{names[0]} {index}",
                len(ranks),
                row.title,
                row.unit,
                _mean([values[rank] for rank in ranks if rank in values]),
            )
            for index, ranks in sorted(members.items())
        ]


def _may_differ(values: Mapping[int, float]) -> bool:
    """Return whether any value may be an outlier, quickly: of ten thousand ranks most rows have none."""
    import numpy as np

    if not values:
        return False
    known = np.fromiter(values.values(), dtype=np.float64)
    away = np.abs(known - np.median(known))
    return bool((away >= _DEVIATIONS * np.median(away)).any())


def _settled(measured: np.ndarray) -> int:
    """Return up to which slot [slot, device] half of the devices have come: a clock that is ahead does not lead the others."""
    import numpy as np

    seen = np.flatnonzero(measured.any(axis=0))
    if not len(seen):
        return 0
    last = len(measured) - np.argmax(measured[::-1, seen], axis=0)
    return int(np.sort(last)[(len(last) - 1) // 2])


def _extend(row: SampleRow, times: np.ndarray, values: np.ndarray, *, keep: float) -> None:
    """Add the means over the devices, and forget what is older than `keep` seconds."""
    import numpy as np

    finite = np.isfinite(values)
    count = finite.sum(axis=1)
    total = np.where(finite, values, 0).sum(axis=1, dtype=np.float64)
    means = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    row.history.update(_known(times, means))
    if math.isfinite(keep) and row.history:
        oldest = max(row.history) - keep
        for moment in [moment for moment in row.history if moment < oldest]:
            del row.history[moment]


def _known(times: np.ndarray, means: np.ndarray) -> dict[float, float]:
    """Return means by moment, from the first to the last that is known; gaps between stay."""
    import numpy as np

    known = np.flatnonzero(np.isfinite(means))
    if not len(known):
        return {}
    inside = slice(int(known[0]), int(known[-1]) + 1)
    return dict(zip(times[inside].tolist(), means[inside].tolist(), strict=True))


def _look(row: SampleRow, times: np.ndarray, values: np.ndarray, devices: Sequence[Any]) -> None:
    """Set what the newest samples [time, device] say of each device."""
    import numpy as np

    lately = times >= times[-1] - _RECENT_S
    values = values[lately]
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    seen = np.flatnonzero(count)
    row.devices = len(seen)
    if not len(seen):
        row.now = row.low = row.high = row.far_value = math.nan
        row.far, row.recent = None, {}
        return
    last = len(values) - 1 - np.argmax(finite[::-1], axis=0)
    newest = values[last, np.arange(values.shape[1])][seen].astype(np.float64)
    mean = np.where(finite, values, 0).sum(axis=0, dtype=np.float64)[seen] / count[seen]
    row.now, row.low, row.high = float(newest.mean()), float(newest.min()), float(newest.max())
    at = int(np.argmax(np.abs(mean - np.median(mean))))
    row.far, row.far_value = devices[int(seen[at])], float(mean[at])
    row.recent = {devices[place]: value for place, value in zip(seen.tolist(), mean.tolist(), strict=True)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
