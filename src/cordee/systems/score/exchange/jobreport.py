"""Recordings of jobreport (CSCS): `step_<n>/proc_<rank>.csv`, one row per GPU with what DCGM's job statistics say of all of it.

Columns: jobId, stepId, username, slurm_account, n_nodes, host, gpuId, powerUsageMin/Max/Avg [W], startTime, endTime [us],
smUtilizationMin/Max/Avg [%], memoryUtilizationMin/Max/Avg [%], maxAllocatedMemory [bytes]. DCGM takes `smUtilization` from the
share of time with a kernel (DCGM_FI_DEV_GPU_UTIL), whatever its name says, and `memoryUtilization` from the time in which memory
was busy.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from cordee.core.errors import DocumentError
from cordee.systems.score.exchange.dcgm_fields import without_blanks
from cordee.systems.score.exchange.files import number, read_table
from cordee.systems.score.exchange.imported import ImportedSamples

COLUMNS = (
    "jobId",
    "stepId",
    "username",
    "slurm_account",
    "n_nodes",
    "host",
    "gpuId",
    "powerUsageMin",
    "powerUsageMax",
    "powerUsageAvg",
    "startTime",
    "endTime",
    "smUtilizationMin",
    "smUtilizationMax",
    "smUtilizationAvg",
    "memoryUtilizationMin",
    "memoryUtilizationMax",
    "memoryUtilizationAvg",
    "maxAllocatedMemory",
)
_MEANS = {
    "smUtilizationAvg": ("gpu_utilization_ratio", 0.01),
    "memoryUtilizationAvg": ("gpu_memory_busy_ratio", 0.01),
    "powerUsageAvg": ("gpu_power_watts", 1.0),
    "maxAllocatedMemory": ("gpu_memory_used_bytes", 1.0),
}
_MOST_SAMPLES = 3600
_NAME = re.compile(r"proc_(\d+)\.csv$")
_LONGEST_US = 400 * 86400e6
_WORDS = ("username", "slurm_account", "host")


def is_table(path: Path) -> bool:
    """Return whether a file's name is one of jobreport's tables."""
    return bool(_NAME.match(path.name))


def read_jobreport(paths: list[Path]) -> ImportedSamples:
    """Return a job's means as samples that are the same from its beginning to its end.

    Raises:
        DocumentError: a file is none of jobreport, or they are of several jobs.
    """
    rows = [row for path in paths for row in _rows(path)]
    longest_s = max((row[2]["endTime"] - row[2]["startTime"] for row in rows), default=0.0) / 1e6
    found = ImportedSamples("jobreport", "dcgm-job-statistics", _cadence_s(longest_s))
    for path, line, values, words in rows:
        _add(found, path, line, values, words)
    hosts, nodes = {node for node, _ in found.devices}, int(max((row[2]["n_nodes"] for row in rows), default=0))
    if nodes > len(hosts):
        found.remark(f"there are files of {len(hosts)} of the job's {nodes} nodes")
    for device in found.devices.values():
        device.metrics = {name: series.whole() for name, series in device.raw.items()}
    found.remark(
        "jobreport keeps one mean per GPU and job: every sample is that mean, so nothing changes with time here"
    )
    found.remark("what jobreport calls SM utilisation is DCGM's share of time with a kernel on the GPU")
    found.remark("the memory in use is the highest of the job, not that of the moment")
    found.remark("jobreport names GPUs by node and index, not by UUID")
    return found


def _cadence_s(longest_s: float) -> float:
    """Return the shortest of a few intervals that makes no more samples of a constant than needed."""
    return next((every for every in (1.0, 10.0, 60.0, 600.0) if longest_s / every <= _MOST_SAMPLES), 3600.0)


def _rows(path: Path) -> list[tuple[Path, int, dict[str, float], dict[str, str]]]:
    names, rows = read_table(path)
    if tuple(names) != COLUMNS:
        raise DocumentError(
            "this is no table of jobreport, or one of another version",
            file=str(path),
            line=1,
            given=", ".join(names)[:120],
            allowed=", ".join(COLUMNS),
        )
    found = []
    for line, row in rows:
        texts = dict(zip(names, row, strict=True))
        values = {name: number(path, line, name, text) for name, text in texts.items() if name not in _WORDS}
        absent = [
            name for name in ("jobId", "stepId", "n_nodes", "gpuId", "startTime", "endTime") if math.isnan(values[name])
        ]
        if absent or not texts["host"]:
            raise DocumentError("a row without " + ", ".join(absent or ["host"]), file=str(path), line=line)
        if not 0 < values["startTime"] <= values["endTime"] <= values["startTime"] + _LONGEST_US:
            raise DocumentError(
                "the job ends before it starts, or never",
                file=str(path),
                line=line,
                given=f"{texts['startTime']} to {texts['endTime']}",
                allowed="microseconds since 1970, at most 400 days apart",
            )
        found.append((path, line, values, texts))
    return found


def _add(found: ImportedSamples, path: Path, line: int, values: dict[str, float], texts: dict[str, str]) -> None:
    import numpy as np

    job = texts["jobId"]
    if found.job not in ("", job):
        raise DocumentError(
            "these files are of several jobs",
            file=str(path),
            line=line,
            given=f"{found.job}, {job}",
            allowed="the files of one job",
            next="import each job into a folder of its own",
        )
    found.job, found.step = job, ",".join(sorted({*filter(None, found.step.split(",")), texts["stepId"]}))
    node, start, end = texts["host"], values["startTime"] / 1e6, values["endTime"] / 1e6
    device = found.device(node, f"{node}/gpu{int(values['gpuId'])}")
    device.about["index"] = int(values["gpuId"])
    device.about["jobreport"] = {
        name: value for name, value in values.items() if name.endswith(("Min", "Max", "Avg")) and math.isfinite(value)
    }
    times = np.arange(start, max(end, start + found.cadence_s), found.cadence_s)
    for column, (metric, scale) in _MEANS.items():
        mean = without_blanks(np.array([values[column]]))[0] * scale
        if math.isfinite(mean):
            device.series(metric).add(times, np.full(len(times), mean))
        else:
            found.missing[metric] = "jobreport failed to measure it"
