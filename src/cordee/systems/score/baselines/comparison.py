"""From folders to baselines and judgements: what `cordee score baseline` and `cordee score --against` do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import cordee
from cordee.core.errors import UsageError
from cordee.systems.score.baselines.baseline import WORKLOAD, Baseline, read_baseline
from cordee.systems.score.baselines.judge import BaselineJudgement, incomparable, judge
from cordee.systems.score.baselines.observe import Observation, observe
from cordee.systems.score.load import load
from cordee.systems.score.result import Caps, Saturation
from cordee.systems.score.roofs import CapsTable, ModelTable, read_caps
from cordee.systems.score.score import score
from cordee.systems.score.trace.model import ScoreTrace


def make_baseline(
    folders: Sequence[str | Path], workload: str, note: str = "", *, keep_command: bool = False
) -> Baseline:
    """Return a baseline of recordings or runs of one workload on one kind of hardware.

    Args:
        keep_command: keep the command line of the first; else none is kept.

    Raises:
        UsageError: the name is none, a folder cannot be scored, or they cannot be compared with each other.
    """
    if not WORKLOAD.fullmatch(workload):
        raise UsageError(
            "this is no name of a workload",
            given=workload,
            allowed="lower case letters, digits, dots, dashes, at most 80: llama-8b-pretrain",
        )
    names = [str(Path(folder).resolve()) for folder in folders]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError("the same run twice would hide how runs differ", given=", ".join(twice))
    runs, command = [], ""
    for folder in folders:
        trace = load(folder)
        runs.append(_observed(trace, score(trace), workload))
        command = command or trace.job.command
        differs = incomparable(runs[-1], runs[0])
        if differs:
            raise UsageError(
                "these runs are not of one workload on one kind of hardware",
                given="; ".join(differs),
                allowed="runs on the same model and number of devices, with the same caps",
                next=f"make a baseline of its own from {folder}",
            )
    return Baseline(
        workload=workload,
        runs=tuple(runs),
        made_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        version=cordee.__version__,
        note=note,
        command=command if keep_command and command else None,
    )


def open_baseline(what: str, caps: CapsTable | None = None) -> Baseline:
    """Return a baseline: a file of one, or the one run or recording that a folder holds.

    Args:
        caps: what a folder is scored by; those of the package and of the person unless given.

    Raises:
        DocumentError: the file is none.
        UsageError: the folder cannot be scored.
    """
    if Path(what).is_file():
        return read_baseline(Path(what))
    trace = load(what)
    return Baseline(
        workload="",
        runs=(_observed(trace, score(trace, caps=caps), ""),),
        made_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        version=cordee.__version__,
    )


def judge_trace(
    trace: ScoreTrace, saturation: Saturation, baseline: Baseline, workload: str = "", *, anyway: bool = False
) -> BaselineJudgement:
    """Return whether a run is worse than a baseline, scored by the same caps as the baseline was.

    Args:
        saturation: the scoring of this trace.
        workload: the run's, where it is known.
        anyway: compare also what must not be compared.

    Raises:
        UsageError: it has no score.
    """
    now = _observed(trace, saturation, workload)
    before = baseline.runs[0]
    if now.caps != before.caps and set(now.caps) == set(before.caps):
        now = _observed(trace, score(trace, caps=_CapsOfBaseline(before)), workload)
        remark = "scored by what counted as full when the baseline was made; the caps have changed since"
        now = replace(now, remarks=(*now.remarks, remark))
    return judge(now, baseline, anyway=anyway)


def _observed(trace: ScoreTrace, saturation: Saturation, workload: str) -> Observation:
    if saturation.shares.score is None:
        raise UsageError(
            f"there is no score to compare: {', '.join(saturation.confidence_reasons)}",
            given=trace.job.name,
            allowed="a recording with a score",
        )
    return observe(trace, saturation, workload)


class _CapsOfBaseline(CapsTable):
    """The caps that a baseline was scored by; all else of a model as it is known here."""

    def __init__(self, before: Observation) -> None:
        self._before, self._here = before.caps, read_caps()

    def of(self, model: str, site: ModelTable = MappingProxyType({})) -> Caps:
        here = self._here.of(model, site)
        if model not in self._before:
            return here
        pipe = {name: value for name, value in self._before[model].items() if name != "dram"}
        return replace(here, pipe=pipe, dram=self._before[model]["dram"], origin="the baseline's")
