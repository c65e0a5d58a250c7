"""A validation as lines of text and as one document."""

from __future__ import annotations

from typing import Any

from cordee.systems.score.validation.judge import FAIL, PASS, SCHEMA, WorkloadJudgement, confusion
from cordee.systems.score.validation.truths import HELD_OUT, TUNED, LabelledWorkload

_WIDTH = 24


def verdict(judgements: list[WorkloadJudgement]) -> str:
    """Return fail when a band or a class was missed, else unknown when something could not be judged, else pass."""
    statuses = {one.status for one in judgements}
    return FAIL if FAIL in statuses else PASS if statuses == {PASS} else "unknown"


def document(judgements: list[WorkloadJudgement], place: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return what `cordee score validate --json` prints."""
    return {
        "schema": SCHEMA,
        "verdict": verdict(judgements),
        "place": place,
        "folder": folder,
        "workloads": [one.document() for one in judgements],
        "confusion": {half: confusion(_of(judgements, half)) for half in (TUNED, HELD_OUT)},
        "accuracy": {half: accuracy(_of(judgements, half)) for half in (TUNED, HELD_OUT)},
    }


def accuracy(judgements: list[WorkloadJudgement]) -> float | None:
    """Return the share of workloads with a right class (0-1) among those that have one and were run; None: none was."""
    asked = [one for one in judgements if one.truth.classes and one.bands]
    return sum(bool(one.class_right) for one in asked) / len(asked) if asked else None


def list_lines(wanted: list[LabelledWorkload]) -> list[str]:
    """Return what there is to run: name, half, class, bands."""
    lines = [f"{'workload':{_WIDTH}} {'half':9} {'class':16} bands"]
    for truth in wanted:
        bands = ", ".join(band.words() for band in truth.bands)
        lines.append(f"{truth.name:{_WIDTH}} {truth.half:9} {' or '.join(truth.classes) or '-':16} {bands}")
        lines.append(f"{'':{_WIDTH}} {truth.title}")
    return lines


def judgement_lines(one: WorkloadJudgement) -> list[str]:
    """Return one workload's result: a line, and one for each band that was missed or could not be judged."""
    right = " or ".join(one.truth.classes) or "-"
    score = "-" if one.score is None else f"{one.score:.1f}"
    lines = [f"{one.truth.name:{_WIDTH}} {one.status:8} {score:>6}  {one.found:14} {right:16} {one.truth.half}"]
    if one.text:
        lines.append(f"    {one.text}")
    for band in one.bands:
        if band.status != PASS:
            value = "-" if band.value is None else f"{band.value:.4g}"
            bounds = "" if band.low is None or band.high is None else f" not in {band.low:.4g}..{band.high:.4g}"
            lines.append(
                f"    {band.band.words()}: {value}{bounds if band.value is not None else ''} {band.text}".rstrip()
            )
    return lines


def header_line() -> str:
    """Return the line above the results."""
    return f"{'workload':{_WIDTH}} {'status':8} {'score':>6}  {'class':14} {'right':16} half"


def end_lines(judgements: list[WorkloadJudgement]) -> list[str]:
    """Return the confusion matrices of both halves, and the sum of it all."""
    lines: list[str] = []
    for half in (TUNED, HELD_OUT):
        of_half = _of(judgements, half)
        if confusion(of_half):
            share = accuracy(of_half)
            lines += ["", f"{half}: right class for {share:.0%} of the workloads", *matrix_lines(confusion(of_half))]
    counts = {name: sum(one.status == name for one in judgements) for name in (PASS, FAIL, "unknown")}
    lines += ["", f"{verdict(judgements)}: " + ", ".join(f"{number} {name}" for name, number in counts.items())]
    return lines


def matrix_lines(table: dict[str, dict[str, int]]) -> list[str]:
    """Return a confusion matrix: a row for each right class, a column for each that was found."""
    columns = sorted({name for row in table.values() for name in row})
    lines = [f"  {'right / found':14}" + "".join(f" {name[:13]:>13}" for name in columns)]
    for name, row in sorted(table.items()):
        lines.append(f"  {name:14}" + "".join(f" {row.get(column, 0) or '.':>13}" for column in columns))
    return lines


def _of(judgements: list[WorkloadJudgement], half: str) -> list[WorkloadJudgement]:
    return [one for one in judgements if one.truth.half == half]
