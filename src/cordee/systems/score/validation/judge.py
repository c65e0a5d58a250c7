"""From a recording of a labelled workload to a judgement: was every band met, and was the class right?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.errors import UsageError
from cordee.systems.score.result import UNKNOWN, Saturation
from cordee.systems.score.trace.model import HostSamples, LoggedTotals, ScoreTrace
from cordee.systems.score.validation.truths import Band, LabelledWorkload, truths

if TYPE_CHECKING:
    import numpy as np

SCHEMA = "cordee.validation/1"
DOCUMENT = "validation.json"
PASS, FAIL = "pass", "fail"
_TO_DEVICE = ("gpu_pcie_receive_bytes_per_second", "gpu_c2c_receive_bytes_per_second")
_LEAST_SAMPLES = 5


@dataclass(frozen=True)
class MeasuredBand:
    """One band, what was found, and whether that lies in it; `status` is pass, fail or unknown, `text` says why."""

    band: Band
    value: float | None
    low: float | None
    high: float | None
    status: str
    text: str = ""


@dataclass
class WorkloadJudgement:
    """What a recording says of a workload.

    Attributes:
        found: the class that most of the labelled time was in; `unknown` when no window could be told.
        shares: of the labelled time by class.
        told: what the workload knew of itself.
        text: why nothing could be judged.
    """

    truth: LabelledWorkload
    status: str
    found: str = UNKNOWN
    shares: dict[str, float] = field(default_factory=dict)
    bands: list[MeasuredBand] = field(default_factory=list)
    told: dict[str, float] = field(default_factory=dict)
    score: float | None = None
    model: str = ""
    text: str = ""

    @property
    def class_right(self) -> bool | None:
        """Whether the class is one of the right ones; None where none is right or wrong."""
        return self.found in self.truth.classes if self.truth.classes else None

    def document(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        truth = {key: value for key, value in asdict(self.truth).items() if key not in ("bands", "given")}
        bands = [{**asdict(one), "band": one.band.words()} for one in self.bands]
        return {**asdict(replace(self, bands=[])), "truth": truth, "bands": bands, "class_right": self.class_right}


def write_document(folder: Path, truth: LabelledWorkload, marks: Mapping[str, Any], place: Mapping[str, Any]) -> None:
    """Write beside a recording what it is of: workload, half, when the labelled time was, machine and date."""
    about = {"workload": truth.name, "device": truth.device, "half": truth.half, **marks, "place": dict(place)}
    (folder / DOCUMENT).write_text(json.dumps({"schema": SCHEMA, **about}, indent=1) + "\n")


def read_document(folder: Path) -> tuple[LabelledWorkload, dict[str, Any]]:
    """Return the workload that a recording is of, and its document.

    Raises:
        UsageError: it is no recording of a validation, or of a workload that is not known any more.
    """
    try:
        document: dict[str, Any] = json.loads((folder / DOCUMENT).read_bytes())
        name, device = document["workload"], document["device"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"this is no recording of a validation: {error}",
            given=str(folder),
            next="make some with `cordee score validate -o DIR`",
        ) from None
    return truths(device, name)[0], document


def judge(
    truth: LabelledWorkload, trace: ScoreTrace, marks: Mapping[str, Any], score: Callable[[ScoreTrace], Saturation]
) -> WorkloadJudgement:
    """Judge a recorded workload.

    Args:
        trace: of the whole recording.
        marks: `began`, `ended` (UTC epoch seconds) and `told`.
        score: what scores a trace.
    """
    told = {str(name): float(value) for name, value in marks["told"].items()}
    labelled = cut(trace, float(marks["began"]), float(marks["ended"]))
    if len(labelled.times) < _LEAST_SAMPLES:
        text = f"{len(labelled.times)} samples lie in the labelled time; {_LEAST_SAMPLES} are needed"
        return WorkloadJudgement(truth, UNKNOWN, told=told, text=text)
    if trace.kind != truth.device:
        text = f"no {truth.device.upper()} was recorded, but {trace.kind.upper()}s"
        return WorkloadJudgement(truth, UNKNOWN, told=told, text=text)
    found = score(labelled)
    shares = _class_shares(found)
    judgement = WorkloadJudgement(
        truth,
        UNKNOWN,
        found=max(shares, key=lambda name: shares[name], default=UNKNOWN),
        shares=shares,
        bands=[_measure(band, labelled, found, told) for band in truth.bands],
        told=told,
        score=found.shares.score,
        model=", ".join(sorted({device.model for device in trace.devices if device.model})),
    )
    statuses = [one.status for one in judgement.bands]
    if judgement.class_right is not None:
        statuses.append(UNKNOWN if judgement.found == UNKNOWN else PASS if judgement.class_right else FAIL)
    judgement.status = FAIL if FAIL in statuses else UNKNOWN if UNKNOWN in statuses else PASS
    return judgement


def cut(trace: ScoreTrace, start: float, stop: float) -> ScoreTrace:
    """Return the samples that were taken wholly between two moments, UTC epoch seconds."""
    inside = (trace.times - trace.cadence_s >= start) & (trace.times <= stop)

    def within(load: Callable[[str], np.ndarray | None]) -> Callable[[str], np.ndarray | None]:
        def load_cut(name: str) -> np.ndarray | None:
            values = load(name)
            return None if values is None else values[inside]

        return load_cut

    def around(of: HostSamples | None) -> HostSamples | None:
        return None if of is None else replace(of, load=within(of.load))

    logged = {}
    for name, of in trace.logged.items():
        kept = (of.times >= start) & (of.times <= stop)
        logged[name] = LoggedTotals(of.times[kept], of.values[kept])
    return replace(
        trace,
        job=replace(trace.job, started_at=start, ended_at=stop),
        times=trace.times[inside],
        load=within(trace.load),
        node=around(trace.node),
        rank=around(trace.rank),
        logged=logged,
    )


def confusion(judgements: list[WorkloadJudgement]) -> dict[str, dict[str, int]]:
    """Return how often each class was found, by the class that is right (a right alternative counts as the right one)."""
    table: dict[str, dict[str, int]] = {}
    for one in judgements:
        if one.truth.classes and one.bands:
            found = one.truth.classes[0] if one.class_right else one.found
            row = table.setdefault(one.truth.classes[0], {})
            row[found] = row.get(found, 0) + 1
    return table


def _class_shares(found: Saturation) -> dict[str, float]:
    """Return the shares of classes over all devices, weighted by what was measured of each."""
    total: dict[str, float] = {}
    measured = 0.0
    for part in found.devices:
        measured += part.shares.device_seconds
        for name, share in part.classes.items():
            total[name] = total.get(name, 0.0) + share * part.shares.device_seconds
    return {name: value / measured for name, value in sorted(total.items())} if measured else {}


def _measure(band: Band, trace: ScoreTrace, found: Saturation, told: dict[str, float]) -> MeasuredBand:
    bounds = band.bounds(told)
    if bounds is None:
        return MeasuredBand(band, None, None, None, UNKNOWN, f"the workload did not tell {band.told}")
    low, high = bounds
    if band.models and not all(re.search(band.models, device.model) for device in trace.devices):
        return MeasuredBand(band, None, low, high, PASS, "asked of other models only")
    value = _quantity(band.quantity, trace, found)
    if value is None:
        reason = trace.missing.get(band.quantity, "not measured")
        return MeasuredBand(band, None, low, high, UNKNOWN, f"{band.quantity}: {reason}")
    return MeasuredBand(band, value, low, high, PASS if low <= value <= high else FAIL)


def _quantity(name: str, trace: ScoreTrace, found: Saturation) -> float | None:
    """Return the mean over the trace's time: over devices, summed over ranks or nodes; None where it was not measured."""
    if name in ("time", "breadth", "depth", "score"):
        value: float | None = getattr(found.shares, name)
        return value
    if name == "host_to_device_bytes_per_second":
        parts = [_mean(trace.load(metric), axis_sum=False) for metric in _TO_DEVICE]
        known = [part for part in parts if part is not None]
        return sum(known) if known else None
    if name.startswith("gpu_"):
        return _mean(trace.load(name), axis_sum=False)
    for around in (trace.rank, trace.node):
        value = None if around is None else _mean(around.load(name), axis_sum=True)
        if value is not None:
            return value
    return None


def _mean(values: np.ndarray | None, *, axis_sum: bool) -> float | None:
    import numpy as np

    if values is None or not np.isfinite(values).any():
        return None
    columns = values[:, np.isfinite(values).any(axis=0)]
    means = np.nanmean(columns.astype(np.float64), axis=0)
    return float(means.sum() if axis_sum else means.mean())
