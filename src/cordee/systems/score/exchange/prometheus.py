"""Answers of Prometheus' `/api/v1/query_range` with metrics of dcgm-exporter.

`{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"__name__", labels}, "values": [[seconds,
"value"]]}]}}` (Prometheus' HTTP API). A file may hold one answer or several, one a line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cordee.core.errors import DocumentError
from cordee.machine.foreign_files import parse_json
from cordee.systems.score.exchange.dcgm_fields import standardise
from cordee.systems.score.exchange.files import read_json, read_text
from cordee.systems.score.exchange.imported import ImportedSamples
from cordee.systems.score.exchange.labels import PREFIX, NoDevice, device_of, finish

_SHAPE = '{"status": "success", "data": {"resultType": "matrix", "result": [...]}}'


def read_prometheus(paths: list[Path]) -> ImportedSamples:
    """Return what range queries answered.

    Raises:
        DocumentError: a file holds no such answer, an error of Prometheus, or no series of a GPU.
    """
    found = ImportedSamples("Prometheus (dcgm-exporter)", "dcgm", 0.0)
    steps: list[float] = []
    for path in paths:
        for line, document in _answers(path):
            for series in _result(path, line, document):
                steps += _add(found, path, line, series)
    finish(found)
    if not found.devices:
        raise DocumentError(
            "no series in these files is of a GPU",
            file=str(paths[0]),
            given=", ".join(sorted(found.unknown)) or "no series",
            allowed="series named DCGM_FI_... with the labels UUID, or Hostname and gpu",
            next='query {__name__=~"DCGM_FI_.*"} over the time of the job',
        )
    found.cadence_s = cadence_of(steps)
    standardise(found)
    return found


def cadence_of(steps: list[float]) -> float:
    """Return the interval that most samples have, to a tenth of a second; 15 s, Prometheus' habit, when there is none."""
    import statistics

    return max(0.1, round(statistics.median(steps), 1)) if steps else 15.0


def _answers(path: Path) -> list[tuple[int, Any]]:
    lines = read_text(path).split("\n")
    if sum(1 for line in lines if line.lstrip().startswith('{"status"')) > 1:
        answers = []
        for at, line in enumerate(lines, 1):
            if line.strip():
                try:
                    answers.append((at, parse_json(line)))
                except ValueError as error:
                    raise DocumentError("this line is no JSON", file=str(path), line=at, given=str(error)) from error
        return answers
    return [(1, read_json(path))]


def _result(path: Path, line: int, document: Any) -> list[Any]:
    if isinstance(document, dict) and document.get("status") == "error":
        raise DocumentError(
            "Prometheus refused the query", file=str(path), line=line, given=f"{document.get('error')}"[:200]
        )
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        raise DocumentError("this is no answer of Prometheus", file=str(path), line=line, allowed=_SHAPE)
    if data.get("resultType") != "matrix":
        raise DocumentError(
            "this answer holds no ranges of time",
            file=str(path),
            line=line,
            given=data.get("resultType"),
            allowed="matrix",
            next="ask /api/v1/query_range with start, end and step",
        )
    result: list[Any] = data["result"]
    return result


def _add(found: ImportedSamples, path: Path, line: int, series: Any) -> list[float]:
    """Add one series; return the interval of its samples, if it has one."""
    import numpy as np

    try:
        labels = {str(name): str(value) for name, value in series["metric"].items()}
        samples = series["values"]
        table = np.array([(moment, float(value)) for moment, value in samples], dtype=np.float64).reshape(-1, 2)
        if not np.isfinite(table[:, 0]).all():
            raise ValueError("a moment is no number")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DocumentError(
            f"a series has another shape ({error})",
            file=str(path),
            line=line,
            given=str(series)[:120],
            allowed='{"metric": {labels}, "values": [[seconds, "value"]]}',
        ) from error
    name = labels.get("__name__", "")
    if not name:
        raise DocumentError(
            "a series has no name: the query changed what was measured",
            file=str(path),
            line=line,
            given=str(labels)[:120],
            next='ask for the series themselves, as {__name__=~"DCGM_FI_.*"}, without rate() or sums',
        )
    if not name.startswith(PREFIX):
        found.unknown[name] = found.unknown.get(name, 0) + len(table)
        return []
    try:
        device_of(found, labels).series(name).add(table[:, 0], table[:, 1])
    except NoDevice as error:
        raise DocumentError(
            f"a series of {name} names no GPU: {error}", file=str(path), line=line, given=str(labels)[:120]
        ) from error
    return [float(np.median(np.diff(table[:, 0])))] if len(table) > 1 else []
