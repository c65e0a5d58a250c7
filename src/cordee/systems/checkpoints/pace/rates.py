"""Rates of storage of a whole job over time: sums over its nodes and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cordee.core.errors import UsageError
from cordee.telemetry.node.catalogue import METRICS
from cordee.telemetry.store.views import heat

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

WRITTEN = "io_write_bytes_per_second"
# Group, metric, and what is made of the devices.
_SHOWN = (
    ("node", "storage_read_bytes_per_second", "sum"),
    ("node", "storage_write_bytes_per_second", "sum"),
    ("node", "storage_read_operations_per_second", "sum"),
    ("node", "storage_write_operations_per_second", "sum"),
    ("node", "storage_open_operations_per_second", "sum"),
    ("node", "storage_metadata_operations_per_second", "sum"),
    ("node", "storage_requests", "sum"),
    ("node", "job_disk_read_bytes_per_second", "sum"),
    ("node", "job_disk_write_bytes_per_second", "sum"),
    ("node", "disk_read_bytes_per_second", "sum"),
    ("node", "disk_write_bytes_per_second", "sum"),
    ("node", "pressure_io_ratio", "mean"),
    ("rank", "io_read_bytes_per_second", "sum"),
    ("rank", WRITTEN, "sum"),
)


@dataclass(frozen=True)
class JobRate:
    """One metric of the whole job.

    Attributes:
        statistic: `sum` or `mean` over the devices.
        devices: how many were ever measured; where fewer were at one time, the sum is theirs in proportion.
        times: float64, UTC epoch seconds at which a point begins; `values` float64, NaN where nothing was measured.
    """

    group: str
    name: str
    unit: str
    source: str
    statistic: str
    devices: int
    times: np.ndarray
    values: np.ndarray


def job_rates(run: Run, start: float | None, stop: float | None, points: int, hosts: int | None) -> list[JobRate]:
    """Return the rates that were measured.

    Args:
        hosts: how many machines the nodes are, where several share one and its numbers; None: each is one.
    """
    found = []
    measured = {(group, name) for group in run.groups() for name in run.metrics(group)}
    for group, name, statistic in _SHOWN:
        if (group, name) not in measured:
            continue
        try:
            seen = heat(run, group, name, start, stop, points)
        except UsageError:
            continue
        mean, devices = mean_of(seen.values)
        if not devices:
            continue
        machines = min(devices, hosts) if group == "node" and hosts is not None else devices
        values = mean * (machines if statistic == "sum" else 1)
        found.append(JobRate(group, name, METRICS[name].unit, seen.source, statistic, devices, seen.times, values))
    return found


def mean_of(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the mean over the devices of values [device, time], NaN where none has one, and the most that had one at once."""
    known = np.isfinite(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0).sum(axis=0, dtype=np.float64)
    mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return mean, int(count.max(initial=0))


def unmeasured(run: Run) -> tuple[str, list[str]] | None:
    """Return (why, nodes) of nodes that tell nothing of shared storage; None when all tell or none was sampled."""
    reasons: dict[str, list[str]] = {}
    for node, about in run.facts("node").items():
        reason = about["missing"].get("storage_write_bytes_per_second")
        if reason:
            reasons.setdefault(str(reason), []).append(node)
    if not reasons:
        return None
    reason = max(reasons, key=lambda text: len(reasons[text]))
    return reason, reasons[reason]
