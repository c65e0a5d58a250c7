"""Recordings of gssr-record 2 (the rewrite in C): a CSV per node in `<cluster>_<job>/step_<n>/proc_<rank>.csv`.

Columns `timestamp` (whole seconds since the recording began), `gpuId`, and min, avg, max of each DCGM field. One file of a step
has a `proc_<rank>.meta.txt` beside it: JSON with the date at which it began. Hosts are not named. Values above 2e9 were written
as 0, and the `avg` of the energy counter is its increase in mJ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.errors import DocumentError
from cordee.machine.foreign_files import parse_json
from cordee.systems.score.exchange.dcgm_fields import ENERGY_MJ, standardise
from cordee.systems.score.exchange.files import number, read_table, read_text
from cordee.systems.score.exchange.imported import ImportedSamples

if TYPE_CHECKING:
    import numpy as np

HEADER = ("timestamp", "gpuId")
_NAME = re.compile(r"proc_(\d+)\.csv$")
_STEP = re.compile(r"step_(\d+)$")
_FIELD = re.compile(r"(DCGM_\w+)_(min|avg|max)$")
_KNOWN_MAJOR = 2


def is_table(path: Path) -> bool:
    """Return whether a file's name is one of gssr-record's tables."""
    return bool(_NAME.search(path.name))


def read_gssr_record(paths: list[Path]) -> ImportedSamples:
    """Return a job's samples from the tables of its nodes.

    Raises:
        DocumentError: one is none of gssr-record 2, or nothing says when the recording began.
    """
    found = ImportedSamples("gssr-record 2 (C)", "dcgm", 1.0)
    zeros, nodes = 0, 0
    for path in paths:
        began, metadata = _began(found, path)
        zeros += _add(found, path, began, metadata)
        told = str(metadata.get("step_nnodes", ""))
        nodes = max(nodes, int(told) if told.isdigit() else 0)
    if nodes > len({node for node, _ in found.devices}):
        found.remark(f"there are files of {len({node for node, _ in found.devices})} of the step's {nodes} nodes")
    standardise(found)
    if zeros:
        found.remark(
            f"{zeros} byte rates of 0 on GPUs in use were left out as not known: gssr-record writes 0 for what is over 2e9"
        )
    found.remark("gssr-record names no host: nodes are called after the process that recorded them")
    found.remark("gssr-record samples all GPUs of a node, also those of other jobs")
    found.remark("gssr-record rounds ratios to 0.01 and times to whole seconds")
    return found


def _began(found: ImportedSamples, path: Path) -> tuple[float, dict[str, Any]]:
    """Return when the recording of a file's step began, and its metadata."""
    metas = sorted(path.parent.glob("proc_*.meta.txt"))
    if not metas:
        raise DocumentError(
            "nothing says when this recording began",
            file=str(path),
            allowed="proc_<rank>.meta.txt beside it",
            next="import the whole folder that gssr-record wrote",
        )
    text = read_text(metas[0])
    version = re.search(r'"gssr-record-version": "(\d+)', text)
    if version is None or int(version[1]) != _KNOWN_MAJOR:
        raise DocumentError(
            "this is of another version of gssr-record",
            file=str(metas[0]),
            line=2,
            given=version[1] if version else "no gssr-record-version",
            allowed=str(_KNOWN_MAJOR),
        )
    date = re.search(r'"date": "([^"]*)"', text)
    try:
        began = datetime.strptime(date[1] if date else "", "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        raise DocumentError(
            "the date at which the recording began is not there",
            file=str(metas[0]),
            given=date[1] if date else None,
            allowed="2026-02-11T10:00:00+0100",
        ) from None
    try:
        return began, parse_json(text)
    except ValueError:  # it quotes no quotation marks of the command
        found.remark(
            f"{metas[0].name} is not whole JSON: job and command were taken from the folder's name or left out"
        )
        return began, {}


def _add(found: ImportedSamples, path: Path, began: float, metadata: dict[str, Any]) -> int:
    """Add a node's table; return how many zeros were left out."""
    name = _NAME.search(path.name)
    step = _STEP.search(path.parent.name)
    rank = int(name[1]) if name else 0
    job = str(metadata.get("jobid") or path.parent.parent.name.rpartition("_")[2])
    if found.job not in ("", job):
        raise DocumentError(
            "these files are of several jobs",
            file=str(path),
            given=f"{found.job}, {job}",
            allowed="the files of one job",
            next="import each job into a folder of its own",
        )
    found.job, found.step = job, ",".join(sorted({*filter(None, found.step.split(",")), step[1] if step else "0"}))
    tasks = str(metadata.get("step_ntasks", ""))
    found.world_size = int(tasks) if tasks.isdigit() else found.world_size
    node = f"proc-{rank}"
    zeros = 0
    for gpu, columns in _by_gpu(path).items():
        device = found.device(node, f"{node}/gpu{gpu}")
        device.about["index"] = gpu
        times = columns.pop("timestamp") + began
        for field, values in columns.items():
            device.series(field).add(times, values)
        zeros += int(columns["zeros"].sum()) if "zeros" in columns else 0
        device.raw.pop("zeros", None)
    return zeros


def _by_gpu(path: Path) -> dict[int, dict[str, np.ndarray]]:
    """Return by GPU the columns: `timestamp`, the mean of every field, and `zeros`, the left out ones of each moment."""
    import numpy as np

    names, rows = read_table(path)
    places = {(match[1], match[2]): at for at, name in enumerate(names) if (match := _FIELD.match(name))}
    if tuple(names[:2]) != HEADER or not places:
        raise DocumentError(
            "this is no table of gssr-record",
            file=str(path),
            line=1,
            given=", ".join(names)[:80],
            allowed="timestamp, gpuId, DCGM_..._min, DCGM_..._avg, DCGM_..._max",
        )
    gathered: dict[int, list[list[float]]] = {}
    for line, row in _whole(path, names, rows):
        values = [number(path, line, name, text) for name, text in zip(names, row, strict=True)]
        if not (math.isfinite(values[0]) and math.isfinite(values[1])):
            raise DocumentError("a row without time or GPU", file=str(path), line=line, given=", ".join(row[:2]))
        gathered.setdefault(int(values[1]), []).append(values)
    return {gpu: _means(np.array(table), places) for gpu, table in gathered.items()}


def _whole(path: Path, names: list[str], rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows; a header that stands there again (two recordings into one file) is an error, not a row."""
    for line, row in rows:
        if row[0] == names[0]:
            raise DocumentError(
                "a second recording begins here", file=str(path), line=line, next="cut the file in two at this line"
            )
        yield line, row


def _means(table: np.ndarray, places: dict[tuple[str, str], int]) -> dict[str, np.ndarray]:
    import numpy as np

    columns = {"timestamp": table[:, 0]}
    busy = table[:, places[("DCGM_FI_DEV_GPU_UTIL", "avg")]] > 0 if ("DCGM_FI_DEV_GPU_UTIL", "avg") in places else None
    zeros = np.zeros(len(table))
    for field in dict.fromkeys(name for name, _ in places):
        if (field, "avg") not in places:
            continue
        values = table[:, places[field, "avg"]]
        if field == ENERGY_MJ:
            columns["DCGM_FI_DEV_POWER_USAGE"] = _watts(values, table, places)
            continue
        if field.endswith("_BYTES"):
            lost = (values == 0) & (busy if busy is not None else True)
            zeros += lost
            values = np.where(lost, np.nan, values)
        if field != "DCGM_FI_DEV_POWER_USAGE" or field not in columns:
            columns[field] = values
    columns["zeros"] = zeros
    return columns


def _watts(increase_mj: np.ndarray, table: np.ndarray, places: dict[tuple[str, str], int]) -> np.ndarray:
    """Return the power: from the energy where it was kept, else that of the moment."""
    import numpy as np

    passed_s = np.diff(table[:, 0], prepend=table[0, 0] - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        watts = np.where((increase_mj > 0) & (passed_s > 0), increase_mj / 1e3 / passed_s, np.nan)
    at = places.get(("DCGM_FI_DEV_POWER_USAGE", "avg"))
    return watts if at is None else np.where(np.isnan(watts), table[:, at], watts)
