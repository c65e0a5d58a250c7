"""A sweep as people are told of it: its trials, which was best, which parameter mattered, and the best one as a document of its own."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from cordee.core.errors import CordeeError, UsageError
from cordee.job.submit import plan_of
from cordee.runs.folder import RunFolder
from cordee.systems.trials.node.commands import filled_in
from cordee.systems.trials.shown import Farm

SCHEMA = "cordee.sweep/1"
_BINS, _FEWEST = 4, 8


class Sweep:
    """The trials of a run.

    Args:
        folder: the run's.

    Raises:
        UsageError: it is no sweep.
        RunFolderError: it cannot be read.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.farm = Farm(folder.root)
        self.part: Mapping[str, Any] = plan_of(folder)["steps"][0]["systems"]["trials"]
        if "metric" not in self.part:
            raise UsageError(
                "this run is no sweep",
                given=folder.id,
                allowed="a run whose job has [sweep]",
                next="`cordee farm show` shows a farm",
            )
        self.trials = [self._trial(row) for row in self.farm.rows()]

    def _trial(self, row: Mapping[str, Any]) -> dict[str, Any]:
        end = self.farm.states.of(row["id"]).end
        value = end.value if end is not None and row["state"] == "done" else None
        more = {name: row.get(name) for name in ("tries", "seconds", "text", "code", "signal")}
        return {"id": row["id"], "parameters": row["values"], "state": row["state"], "value": value, **more}

    @property
    def best(self) -> dict[str, Any] | None:
        """The trial with the best value, the first of equal ones; None: none has a value."""
        done = [trial for trial in self.trials if trial["value"] is not None]
        sign = -1.0 if self.part["aim"] == "max" else 1.0
        return min(done, key=lambda trial: sign * trial["value"], default=None)

    def document(self) -> dict[str, Any]:
        """Return the document of `cordee sweep show`."""
        return {
            "schema": SCHEMA,
            "run": self.folder.id,
            "goal": f"{self.part['aim']} {self.part['metric']}",
            "trials": self.trials,
            "best": self.best,
            "importance": importance(self.trials),
        }

    def best_document(self) -> str:
        """Return the job document with the values of the best trial in place of the sweep; comments stay.

        Raises:
            UsageError: no trial has a value.
            CordeeError: the document is written in a way that cannot be changed as text.
        """
        best = self.best
        if best is None:
            raise UsageError(
                "no trial of this sweep has a value",
                given=self.folder.id,
                next=f"`cordee sweep show {self.folder.id}` says why",
            )
        path = self.folder.documents / "cordee.toml"
        text = path.read_text()
        wanted = {key: value for key, value in tomllib.loads(text).items() if key != "sweep"}
        run = wanted["run"]
        wanted["run"] = (
            filled_in([run], best["parameters"])[0]
            if isinstance(run, str)
            else list(filled_in(run, best["parameters"]))
        )
        without = re.sub(r"^\[sweep\][^\n]*\n(?:(?!\[).*\n?)*", "", text, flags=re.MULTILINE)
        line = re.compile(r"^run\s*=.*$", re.MULTILINE)
        made = line.sub(lambda found: filled_in([found[0]], best["parameters"])[0], without, count=1)
        if tomllib.loads(made) != wanted:
            what = f"put these values into it by hand: {best['parameters']}"
            raise CordeeError("the job document cannot be changed as text", given=str(path), next=what)
        value = f"{self.part['metric']} = {best['value']:.6g}"
        return f"# Trial {best['id']} of {self.folder.id}: {value}.\n{made}"


def importance(trials: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Return by how much each parameter alone explains the order of the trials: a share of its variance; None: too few trials.

    It is the share of the variance of the values' ranks between groups of trials that are alike in the parameter (as many
    groups as it has choices, or quarters of its range), less what chance explains with as many groups: adjusted eta squared.
    """
    done = [trial for trial in trials if trial["value"] is not None]
    if len(done) < _FEWEST:
        return None
    ranks = _ranks([trial["value"] for trial in done])
    return {
        name: _explained(_groups([trial["parameters"][name] for trial in done]), ranks)
        for name in done[0]["parameters"]
    }


def _groups(values: Sequence[str]) -> list[int]:
    distinct = sorted(set(values))
    if len(distinct) <= _BINS:
        return [distinct.index(value) for value in values]
    try:
        order = _ranks([float(value) for value in values])
    except ValueError:
        return [distinct.index(value) for value in values]
    return [min(_BINS - 1, int(rank * _BINS / len(values))) for rank in order]


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, from 0; equal ones share theirs."""
    order = sorted(values)
    first = {value: index for index, value in reversed(list(enumerate(order)))}
    last = {value: index for index, value in enumerate(order)}
    return [(first[value] + last[value]) / 2 for value in values]


def _explained(groups: Sequence[int], ranks: Sequence[float]) -> float:
    count, mean = len(ranks), sum(ranks) / len(ranks)
    total = sum((rank - mean) ** 2 for rank in ranks)
    members: dict[int, list[float]] = {}
    for group, rank in zip(groups, ranks, strict=True):
        members.setdefault(group, []).append(rank)
    if not total or len(members) < 2 or len(members) >= count:
        return 0.0
    within = sum((rank - sum(some) / len(some)) ** 2 for some in members.values() for rank in some)
    return round(max(0.0, 1 - within / total * (count - 1) / (count - len(members))), 3)
