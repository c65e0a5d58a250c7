"""Baselines: what a workload reached in one or several runs, with their spread; `cordee.baseline/1`.

A document holds quantities and hardware, never samples, command lines, paths or names of people.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cordee.core.errors import DocumentError, UsageError
from cordee.core.findings import Finding
from cordee.machine.foreign_files import read_json
from cordee.systems.score.baselines.observe import Observation

SCHEMA = "cordee.baseline/1"
FEWEST_RUNS = 5  # fewer do not show how far runs of one job differ
WORKLOAD = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_PERSONAL = (
    (re.compile(r"(?:^|[\s\"'=:(])(?:/[\w.@+-]+){2,}"), "a path"),
    (re.compile(r"(?:^|[\s\"'=])~[\w-]*/"), "a path in someone's home"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"), "a mail address"),
    (re.compile(r"\b[A-Z]:\\"), "a path"),
)


@dataclass(frozen=True)
class Baseline:
    """A workload's runs.

    Attributes:
        workload: its name: lower case letters, digits, dots, dashes.
        runs: what each of them reached, all on the same hardware.
        command: its command line, None unless it was asked to be kept.
        made_at: UTC, ISO 8601.
        version: of Cordée.
    """

    workload: str
    runs: tuple[Observation, ...]
    made_at: str
    version: str
    note: str = ""
    command: str | None = None

    def document(self) -> dict[str, Any]:
        """Return it as its file has it, with median and spread of every quantity for people."""
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "made_at": self.made_at,
            "version": self.version,
            "note": self.note,
            **({"command": self.command} if self.command is not None else {}),
            "quantities": {name: asdict(spread(self, name)) for name in quantity_names(self.runs)},
            "runs": [run.document() for run in self.runs],
        }


@dataclass(frozen=True)
class Spread:
    """A quantity over the runs of a baseline: the median, the least and the greatest value."""

    unit: str
    runs: int
    median: float
    low: float
    high: float


def quantity_names(runs: Sequence[Observation]) -> list[str]:
    """Return the quantities that all runs have, in the order of the first."""
    return [name for name in runs[0].quantities if all(name in run.quantities for run in runs)]


def spread(baseline: Baseline, name: str) -> Spread:
    """Return median and spread of a quantity over the runs."""
    values = [run.quantities[name].value for run in baseline.runs]
    unit = baseline.runs[0].quantities[name].unit
    return Spread(unit, len(values), statistics.median(values), min(values), max(values))


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a new file.

    Raises:
        UsageError: it is there, or the disk refuses.
        DocumentError: something in it points to a person.
    """
    text = json.dumps(baseline.document(), indent=1, allow_nan=False) + "\n"
    faults = personal(json.loads(text))
    if faults:
        raise DocumentError(
            "the baseline would hold something personal",
            given="; ".join(faults[:4]),
            allowed="names of workloads and hardware, numbers",
            next="leave out --keep-command, or change --note",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError("there is something of this name already", given=str(path), next="choose another -o") from None
    except OSError as error:
        raise UsageError(f"cannot write the baseline: {error.strerror}", given=str(path)) from error


def read_baseline(path: Path) -> Baseline:
    """Return a baseline out of its file.

    Raises:
        DocumentError: it cannot be read, or is none; says the line where it is no JSON.
    """
    try:
        document = read_json(path)
    except OSError as error:
        raise DocumentError(f"cannot read the baseline: {error.strerror}", given=str(path)) from error
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise DocumentError("this is no JSON", file=str(path), line=line, given=str(error)) from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise DocumentError(
            "this is no baseline",
            file=str(path),
            given=schema,
            allowed=SCHEMA,
            next="make one with `cordee score baseline DIR... -o FILE --workload NAME`",
        )
    try:
        baseline = Baseline(
            workload=_word(document["workload"]),
            runs=tuple(Observation.from_document(run) for run in document["runs"]),
            made_at=_word(document["made_at"]),
            version=_word(document["version"]),
            note=_word(document.get("note", "")),
            command=None if document.get("command") is None else _word(document["command"]),
        )
        if not baseline.runs:
            raise ValueError("it holds no run")
        if not WORKLOAD.fullmatch(baseline.workload):
            raise ValueError(f"{baseline.workload!r} is no name of a workload")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DocumentError(f"the baseline is damaged: {what}", file=str(path)) from error
    return baseline


def personal(document: Any, at: str = "") -> list[str]:
    """Return what of a document looks like a path, a home or a mail address, with where it stands."""
    if isinstance(document, dict):
        return [fault for key, value in document.items() for fault in personal(value, f"{at}.{key}" if at else key)]
    if isinstance(document, list):
        return [fault for index, value in enumerate(document) for fault in personal(value, f"{at}[{index}]")]
    if isinstance(document, str):
        return [f"{at}: {what} ({document[:60]!r})" for pattern, what in _PERSONAL if pattern.search(document)][:1]
    return []


def check_folder(folder: Path) -> tuple[list[tuple[Path, Baseline]], list[Finding]]:
    """Return the baselines of a folder, and what is wrong with its files: no baseline, personal, two of one name and hardware.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError("there is no such folder", given=str(folder), allowed="a folder of baselines")
    found: list[tuple[Path, Baseline]] = []
    faults: list[Finding] = []
    places: dict[tuple[Any, ...], Path] = {}
    for path in sorted(folder.rglob("*.json")):
        try:
            baseline = read_baseline(path)
        except DocumentError as error:
            faults.append(
                Finding(
                    error.text, rule="no-baseline", file=str(path), line=error.line, given=error.given, next=error.next
                )
            )
            continue
        faults += [
            Finding("the baseline holds something personal", rule="personal", file=str(path), given=fault)
            for fault in personal(read_json(path))
        ]
        place = (baseline.workload, *baseline.runs[0].hardware)
        if place in places:
            faults.append(
                Finding(
                    "another baseline is of the same workload and hardware",
                    severity="warn",
                    rule="twice",
                    file=str(path),
                    given=str(places[place]),
                    next="keep one, made of the runs of both",
                )
            )
        places.setdefault(place, path)
        found.append((path, baseline))
    return found, faults


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
