"""Caps of this machine's GPUs: what share of each pipe and of DRAM labelled kernels reach, measured by the real recorder.

The kernels are those of `cordee score validate`: a bf16 GEMM for the tensor pipe, a triad for DRAM, multiply-adds for fp64 and
fp32. A cap is the median of the counter over the steady part.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CordeeError, UsageError
from cordee.machine.gpus.driver import driver_version
from cordee.runs.folder import write_atomically
from cordee.systems.score.load import load
from cordee.systems.score.roofs import read_caps_file
from cordee.systems.score.validation.conduct import Conduct, NoGpu, find_gpu, this_place
from cordee.systems.score.validation.judge import DOCUMENT, read_document
from cordee.systems.score.validation.truths import truths

if TYPE_CHECKING:
    import numpy as np

SCHEMA = "cordee.calibration/1"
# By cap: the labelled workload that fills it, and the counter that says how far.
WORKLOADS = {
    "tensor": ("gemm-bf16", "gpu_tensor_ratio"),
    "dram": ("triad", "gpu_dram_ratio"),
    "fp64": ("fma-fp64", "gpu_fp64_ratio"),
    "fp32": ("fma-fp32", "gpu_fp32_ratio"),
}
METHOD = "median of the counter over the steady part of labelled kernels (gemm-bf16, triad, fma-fp64, fma-fp32)"
_INTERVAL_S = 0.2
_SETTLING_S = 1.0
_FEWEST_SAMPLES = 8
_WIDEST = 0.1  # half of the samples lie within this share of the median, or it was not steady
_LEAST = 0.5  # a kernel that reaches less of the pipe that it was written for did not have the GPU to itself


@dataclass(frozen=True)
class MeasuredCap:
    """One cap of one GPU: `value` is None where it cannot be said, and `text` why."""

    cap: str
    device: str
    model: str
    value: float | None
    samples: int
    text: str = ""


@dataclass(frozen=True)
class Calibration:
    """What was measured, and the caps by model that come of it: the median over the GPUs of a model."""

    measured: list[MeasuredCap]
    caps: dict[str, dict[str, float]]
    place: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "schema": SCHEMA,
            "caps": self.caps,
            "measured": [vars(one) for one in self.measured],
            "place": self.place,
            "method": METHOD,
        }


def calibrate(seconds: float, python: str = sys.executable, say: Callable[[str], None] = print) -> Calibration:
    """Run the kernels on every GPU that is visible here, one after the other, and return their caps.

    Args:
        seconds: of steady time for each GPU.
        python: the interpreter of the kernels; it needs torch.
        say: hears of each kernel.

    Raises:
        NoGpu: no GPU, or no torch that sees one.
        UsageError: none of the caps could be measured; says why.
    """
    try:
        seen = find_gpu(python)
    except NoGpu as error:
        raise NoGpu(
            "there is no GPU to calibrate: " + error.text.partition(": ")[2],
            given=error.given,
            allowed="a machine with an NVIDIA GPU, and a Python with torch built for CUDA (--python)",
            next="run it on a GPU node, as in `srun --gpus=1 cordee score calibrate`",
        ) from None
    place = {**this_place(), "host": socket.gethostname(), "driver": driver_version(), **seen}
    wanted = truths("gpu", ",".join(name for name, _ in WORKLOADS.values()))
    failed: list[MeasuredCap] = []
    with tempfile.TemporaryDirectory(prefix="cordee-calibration-") as folder:
        for gpu in seen["gpus"]:
            conduct = Conduct(Path(folder) / gpu["uuid"], seconds / len(wanted), _INTERVAL_S, python, place)
            conduct.folder.mkdir(mode=0o700)
            with _only(gpu["uuid"]):
                for truth in wanted:
                    say(f"{gpu['model']} {gpu['uuid']}: {truth.title}")
                    judged = conduct.run(truth)
                    if not (conduct.folder / truth.name / DOCUMENT).is_file():
                        cap = _cap_of(truth.name) or truth.name
                        failed.append(MeasuredCap(cap, gpu["uuid"], gpu["model"], None, 0, judged.text))
        return caps_of_recordings(Path(folder), place, failed)


def caps_of_recordings(
    folder: Path, place: Mapping[str, Any] | None = None, failed: Sequence[MeasuredCap] = ()
) -> Calibration:
    """Return the caps that recordings of labelled workloads below a folder show; nothing is run.

    Args:
        place: machine and date; None: as the recordings say.
        failed: what could not be recorded.

    Raises:
        UsageError: there are none, or none of the caps could be measured; says why.
    """
    measured: list[MeasuredCap] = list(failed)
    about: dict[str, Any] = dict(place or {})
    for path in sorted(folder.rglob(DOCUMENT)):
        truth, document = read_document(path.parent)
        cap = _cap_of(truth.name)
        if cap is not None:
            measured += _measure(cap, path.parent, document)
            about = about or dict(document.get("place", {}))
    caps: dict[str, dict[str, float]] = {}
    for model in dict.fromkeys(one.model for one in measured):
        for cap in WORKLOADS:
            values = sorted(
                one.value for one in measured if (one.model, one.cap) == (model, cap) and one.value is not None
            )
            if values:
                caps.setdefault(model, {})[cap] = round(values[len(values) // 2], 4)
    if not caps:
        reasons = list(dict.fromkeys(f"{one.cap}: {one.text}" for one in measured)) or ["no kernel could be recorded"]
        raise UsageError(
            "no cap could be measured",
            given="; ".join(reasons[:4]),
            allowed="a GPU with counters of its pipes (Hopper and newer, or DCGM) that nobody else uses",
            next="see `cordee record --source` for what can be sampled here",
        )
    return Calibration(measured, caps, about)


def _cap_of(workload: str) -> str | None:
    return next((cap for cap, (name, _) in WORKLOADS.items() if name == workload), None)


def steady_median(values: np.ndarray) -> tuple[float | None, str]:
    """Return the median of the samples of a steady kernel, or None and why they say nothing."""
    import numpy as np

    known = values[np.isfinite(values)]
    if len(known) < _FEWEST_SAMPLES:
        return None, f"{len(known)} samples, too few: at least {_FEWEST_SAMPLES} are needed"
    low, median, high = np.percentile(known, (25, 50, 75))
    if high - low > _WIDEST * median:
        return None, f"not steady: half of the samples lie between {low:.3f} and {high:.3f}; does anyone else use it?"
    if median < _LEAST:
        return None, f"only {median:.3f} was reached; does anyone else use it, or is its clock held down?"
    return float(median), ""


def _measure(cap: str, folder: Path, document: dict[str, Any]) -> list[MeasuredCap]:
    """Return a cap as each GPU of a recording shows it."""
    import numpy as np

    metric = WORKLOADS[cap][1]
    try:
        trace = load(folder)
    except CordeeError as error:
        return [MeasuredCap(cap, "", "", None, 0, error.text)]
    values = trace.load(metric)
    if values is None or not np.isfinite(values).any():
        why = trace.missing.get(metric) or f"{trace.source} does not measure {metric}"
        return [MeasuredCap(cap, device.key, device.model, None, 0, why) for device in trace.devices]
    steady = (trace.times >= document["began"] + _SETTLING_S) & (trace.times <= document["ended"] - trace.cadence_s)
    found = []
    for at, device in enumerate(trace.devices):
        value, text = steady_median(values[steady, at])
        if device.parent and value is not None:
            value, text = None, "an instance of a GPU (MIG) has caps of its own: calibrate the whole GPU"
        found.append(MeasuredCap(cap, device.key, device.model, value, int(steady.sum()), text))
    return found


def write_caps(path: Path, calibration: Calibration) -> None:
    """Put the caps into a file of caps; what else stands there stays, of these models all but what was measured anew.

    Raises:
        DocumentError: the file that is there is none of caps.
        UsageError: it cannot be written.
    """
    known = read_caps_file(path).get("model", {}) if path.is_file() else {}
    text = path.read_text() if path.is_file() else ""
    place = calibration.place
    origin = {
        "origin": "cordee score calibrate",
        "date": str(place.get("date", ""))[:10],
        **{key: str(place[key]) for key in ("driver", "host") if place.get(key)},
        "method": METHOD,
    }
    for model, caps in calibration.caps.items():
        if model in known:
            text = without_section(text, model)
        about = {**known.get(model, {}), **caps, **origin}
        lines = [f"[model.{json.dumps(model)}]", *(f"{key} = {json.dumps(value)}" for key, value in about.items())]
        text = (text.rstrip() + "\n\n" if text.strip() else "") + "\n".join(lines) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except (OSError, CordeeError) as error:
        raise UsageError(f"cannot write the caps: {error}", given=str(path), next="choose another --output") from error


def without_section(text: str, model: str) -> str:
    """Return a file of caps without the table of a model: from its header to the next one."""
    kept, inside = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            inside = _header_of(line) == model
        if not inside:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _header_of(line: str) -> str | None:
    """Return the model of `[model."NAME"]`, None of other headers."""
    try:
        return str(next(iter(tomllib.loads(line)["model"])))
    except (tomllib.TOMLDecodeError, KeyError, StopIteration):
        return None


@contextmanager
def _only(uuid: str) -> Iterator[None]:
    """Have children see one GPU."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
