"""From what an importer found to a recording's folder: whole, or not there at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cordee
from cordee.core.errors import DocumentError, RunFolderError, UsageError
from cordee.runs.folder import RunFolder
from cordee.systems.score.exchange.imported import FoundDevice, ImportedSamples
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_facts, encode_grid, encode_schema
from cordee.telemetry.node.catalogue import GPU, described
from cordee.telemetry.node.recording import Recorder, claim_number, write_recorder

if TYPE_CHECKING:
    import numpy as np

_BRIDGED = 2.0
_LONGEST_S = 400 * 86400
_LAST_MOMENT_S = 32_503_680_000  # the year 3000: what is later was given in milliseconds
_ROWS_AT_ONCE = 64


def write_recording(found: ImportedSamples, out: Path) -> dict[str, Any]:
    """Write a recording to a new folder and return what is in it: nodes, devices, samples, metrics, seconds, remarks.

    Args:
        out: must not be there yet; nothing is left there when writing fails.

    Raises:
        UsageError: it is there.
        DocumentError: nothing was measured.
        RunFolderError: the disk refuses.
    """
    refuse_existing(out)
    span = _span(found)
    if span is None:
        raise DocumentError(
            "there is not one sample in these files",
            given=found.tool,
            allowed="a recording with samples of at least one GPU",
            next="was the recorded program over before the first sample was taken? record it again",
        )
    _explain(found)
    draft = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
        samples = 0
        for node in _nodes(found):
            remarks = found.remarks if node == _nodes(found)[0] else []  # said once, not once a node
            samples += _write_node(RunFolder(draft), found, node, remarks, *span)
        os.rename(draft, out)
    except OSError as error:
        raise RunFolderError(
            f"the recording could not be written: {error.strerror}",
            given=str(out),
            allowed="a folder on a disk with space that you may write",
            next="choose another place with -o DIR",
        ) from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
    return {
        "nodes": _nodes(found),
        "devices": len(found.devices),
        "metrics": _metrics(list(found.devices.values())),
        "samples": samples,
        "interval_s": found.cadence_s,
        "seconds": (span[1] - span[0]) * found.cadence_s,
        "remarks": found.remarks,
        "missing": found.missing,
    }


def refuse_existing(out: Path) -> None:
    """Raise UsageError when something is there already."""
    if out.exists():
        raise UsageError(
            "there is something of this name already",
            given=str(out),
            allowed="a folder that is not there yet",
            next="choose another name with -o, or remove it",
        )


def onto_grid(times: np.ndarray, values: np.ndarray, cadence_s: float, first: int, stop: int) -> np.ndarray:
    """Return the values of the slots [first, stop): each slot's newest sample, NaN where there is none.

    Between two samples at most two intervals apart (the later one came a little late) the earlier one stands for the slot.
    """
    import numpy as np

    moments = np.arange(first, stop) * cadence_s
    index = np.searchsorted(times, moments + cadence_s / 2, side="left") - 1
    last = np.maximum(index, 0)
    gaps = np.append(np.diff(times), np.inf)[last]
    own = moments - times[last] <= cadence_s / 2
    return np.where((index >= 0) & (own | (gaps <= _BRIDGED * cadence_s)), values[last], np.nan)


def _span(found: ImportedSamples) -> tuple[int, int] | None:
    import numpy as np

    measured = [
        times[np.isfinite(values)][[0, -1]]
        for device in found.devices.values()
        for times, values in device.metrics.values()
        if np.isfinite(values).any()
    ]
    if not measured:
        return None
    low, high = min(ends[0] for ends in measured), max(ends[1] for ends in measured)
    if not 0 < low <= high < _LAST_MOMENT_S or high - low > _LONGEST_S:
        raise DocumentError(
            "the moments of these samples cannot be those of one job",
            given=f"{low:.0f} to {high:.0f} seconds since 1970",
            allowed=f"at most {_LONGEST_S // 86400} days apart",
            next="leave out the file with the wrong clock",
        )
    return int(np.floor(low / found.cadence_s + 0.5)), int(np.floor(high / found.cadence_s + 0.5)) + 1


def _explain(found: ImportedSamples) -> None:
    """Say what could not be carried over, and why what is missing is missing."""
    found.remarks.insert(0, f"imported from {found.tool}; Cordée did not measure this itself")
    if found.unknown:
        names = ", ".join(f"{name} ({count} values)" for name, count in sorted(found.unknown.items()))
        found.remark(f"left out, because no standard metric answers to it: {names}")
    have = _metrics(list(found.devices.values()))
    for metric in GPU:
        if metric.name not in have:
            found.missing.setdefault(metric.name, f"{found.tool} did not record it")


def _nodes(found: ImportedSamples) -> list[str]:
    return sorted({node for node, _ in found.devices} | set(found.ranks))


def _metrics(devices: list[FoundDevice]) -> list[str]:
    return [metric.name for metric in GPU if any(metric.name in device.metrics for device in devices)]


def _write_node(folder: RunFolder, found: ImportedSamples, node: str, remarks: list[str], first: int, stop: int) -> int:
    """Write one node as one sampler would have; return how many samples of devices it has."""
    number = claim_number(folder)
    devices = [device for (of, _), device in sorted(found.devices.items()) if of == node]
    writer = BlockLogWriter(folder.telemetry, number)
    samples = _append_samples(writer, found, node, devices, first, stop) if devices else 0
    about = {device.key: device.about for device in devices}
    writer.append(encode_facts(node, "gpu", stop * found.cadence_s, about, found.missing, remarks))
    if not writer.close() or writer.dropped_bytes:
        raise writer.last_error or OSError(0, "samples were dropped")
    started_at, ended_at = first * found.cadence_s, stop * found.cadence_s
    write_recorder(
        folder,
        Recorder(
            number=number,
            node=node,
            host=node,
            pid=0,
            started_at=started_at,
            interval_s=found.cadence_s,
            version=cordee.__version__,
            job=found.job,
            step=found.step,
            world_size=found.world_size,
            heard_at=ended_at,
            ended_at=ended_at,
            sources=[found.source],
            remarks=list(remarks),
            ranks=found.ranks.get(node, []),
        ),
    )
    return samples


def _append_samples(
    writer: BlockLogWriter, found: ImportedSamples, node: str, devices: list[FoundDevice], first: int, stop: int
) -> int:
    import numpy as np

    names = _metrics(devices)
    schema, record = encode_schema(
        node,
        "gpu",
        found.cadence_s,
        [device.key for device in devices],
        [described(name, found.source) for name in names],
    )
    cube = np.full((stop - first, len(devices), len(names)), np.nan, dtype="<f4")
    for column, device in enumerate(devices):
        for row, name in enumerate(names):
            if name in device.metrics and len(device.metrics[name][0]):
                cube[:, column, row] = onto_grid(*device.metrics[name], found.cadence_s, first, stop)
    writer.append(record)
    measured = np.isfinite(cube).any(axis=2)
    moments = np.flatnonzero(measured.any(axis=1))
    for at in range(0, len(moments), _ROWS_AT_ONCE):
        rows = moments[at : at + _ROWS_AT_ONCE]
        writer.append(
            b"".join(encode_grid(schema, (first + row) * found.cadence_s, cube[row].tobytes()) for row in rows.tolist())
        )
    return int(measured.sum())
