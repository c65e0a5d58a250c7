"""A sweep as people are told of it: its trials, which was best, which parameter mattered, and the best one as a document of its own."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from cordee.core.errors import CordeeError, UsageError
from cordee.job.submit import plan_of
from cordee.runs.folder import RunFolder
from cordee.systems.trials.node.commands import filled_in
from cordee.systems.trials.node.task_states import HALVED
from cordee.systems.trials.shown import Farm

SCHEMA = "cordee.sweep/1"
_BINS, _FEWEST = 4, 8


def is_sweep(folder: RunFolder) -> bool:
    """Return whether a run that has tasks is a sweep."""
    return "goals" in plan_of(folder)["steps"][0]["systems"]["trials"]


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
        if "goals" not in self.part:
            allowed, what = "a run whose job has [sweep]", "`cordee farm show` shows a farm"
            raise UsageError("this run is no sweep", given=folder.id, allowed=allowed, next=what)
        self.goals: list[tuple[str, str]] = [(aim, metric) for aim, metric in self.part["goals"]]
        changed = (self.farm.states.table or {}).get("sweep")
        self.table: Mapping[str, Any] = changed or self.part["sweep"]
        self.trials = [self._trial(row) for row in self.farm.rows()]

    def _trial(self, row: Mapping[str, Any]) -> dict[str, Any]:
        end = self.farm.states.of(row["id"]).end
        value = end.value if end is not None and row["state"] == "done" else None
        values = value if isinstance(value, list) else None if value is None else [value]
        state = HALVED if row["state"] == "done" and end is not None and end.reason == HALVED else row["state"]
        more = {name: row.get(name) for name in ("tries", "seconds", "text", "code", "signal")}
        about = {"id": row["id"], "parameters": row["values"], "state": state}
        return {**about, "value": values[0] if values else None, "values": values, **more}

    @property
    def compared(self) -> list[dict[str, Any]]:
        """The trials that ran to their end and have values."""
        return [trial for trial in self.trials if trial["value"] is not None and trial["state"] == "done"]

    @property
    def best(self) -> dict[str, Any] | None:
        """The trial with the best value for the first goal, the first of equal ones; None: none has a value."""
        sign = -1.0 if self.goals[0][0] == "max" else 1.0
        return min(self.compared, key=lambda trial: sign * trial["value"], default=None)

    @property
    def front(self) -> list[dict[str, Any]]:
        """The trials that no other one beats in all goals, by the first goal."""
        signs = [-1.0 if aim == "max" else 1.0 for aim, _ in self.goals]
        costs = [
            ([sign * value for sign, value in zip(signs, trial["values"], strict=True)], trial)
            for trial in self.compared
        ]
        costs.sort(key=lambda one: one[0])
        return [trial for cost, trial in costs if not any(_beats(other, cost) for other, _ in costs)]

    def in_order(self) -> list[dict[str, Any]]:
        """Return the trials: those that no other one beats first, then what ran to its end, then what has a value."""
        sign = -1.0 if self.goals[0][0] == "max" else 1.0
        front = {trial["id"] for trial in self.front} if len(self.goals) > 1 else set()

        def place(trial: Mapping[str, Any]) -> tuple[Any, ...]:
            bad = (trial["id"] not in front, trial["state"] != "done", trial["value"] is None)
            return (*bad, sign * (trial["value"] or 0.0))

        return sorted(self.trials, key=place)

    def document(self) -> dict[str, Any]:
        """Return the document of `cordee sweep show`."""
        return {
            "schema": SCHEMA,
            "run": self.folder.id,
            "goal": ", ".join(" ".join(goal) for goal in self.goals),
            "trials": self.trials,
            "best": self.best,
            "front": [trial["id"] for trial in self.front] if len(self.goals) > 1 else None,
            "importance": importance(self.compared),
        }

    def best_document(self, number: int | None = None) -> str:
        """Return the job document with the values of the best trial in place of the sweep; comments stay.

        Args:
            number: of the trial that is to be taken; None: the best.

        Raises:
            UsageError: no trial has a value, or there are several goals and no number.
            CordeeError: the document is written in a way that cannot be changed as text.
        """
        best = self._chosen(number)
        path = self.folder.documents / "cordee.toml"
        text = path.read_text()
        wanted = {key: value for key, value in tomllib.loads(text).items() if key != "sweep"}
        run, names = wanted["run"], self.part.get("names", ())
        words = shlex.split(run) if isinstance(run, str) else run
        filled = list(filled_in(words, {**best["parameters"], "number": str(best["id"])}, names))
        wanted["run"] = shlex.join(filled) if isinstance(run, str) else filled
        without = re.sub(r"^\[sweep\][^\n]*\n(?:(?!\[).*\n?)*", "", text, flags=re.MULTILINE)
        line = re.compile(r"^run\s*=.*$", re.MULTILINE)
        made = line.sub(lambda _: f"run = {json.dumps(wanted['run'])}", without, count=1)
        if tomllib.loads(made) != wanted:
            what = f"put these values into it by hand: {best['parameters']}"
            raise CordeeError("the job document cannot be changed as text", given=str(path), next=what)
        pairs = zip(self.goals, best["values"], strict=True)
        told = ", ".join(f"{metric} = {value:.6g}" for (_, metric), value in pairs)
        return f"# Trial {best['id']} of {self.folder.id}: {told}.\n{made}"

    def _chosen(self, number: int | None) -> Mapping[str, Any]:
        again = f"`cordee sweep show {self.folder.id}` lists them"
        if number is not None:
            found = next((trial for trial in self.trials if trial["id"] == number and trial["values"]), None)
            if found is None:
                raise UsageError("there is no such trial with a value", given=number, next=again)
            return found
        if self.best is None:
            text, what = "no trial of this sweep has a value", again.replace("lists them", "says why")
            raise UsageError(text, given=self.folder.id, next=what)
        if len(self.goals) > 1:
            numbers = ", ".join(str(trial["id"]) for trial in self.front)
            text = "of several goals there is no one best trial"
            raise UsageError(text, given=self.folder.id, allowed=f"--trial with one of {numbers}", next="choose one")
        return self.best


def trial_words(trial: Mapping[str, Any]) -> str:
    """Return a trial's line in a list: number, values or state, parameters, what went wrong."""
    values = " ".join(f"{name}={value}" for name, value in trial["parameters"].items())
    told = " ".join(f"{value:.6g}" for value in trial["values"]) if trial["values"] else trial["state"]
    why = f"  ({trial['text']})" if trial.get("text") else "  (ended early)" if trial["state"] == "halved" else ""
    return f"{trial['id']:>6}  {told:>12}  {values}{why}"


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and list(one) != list(other)


def importance(trials: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Return by how much each parameter alone explains the order of the trials: a share of its variance; None: too few trials.

    It is the share of the variance of the values' ranks between groups of trials that are alike in the parameter (as many
    groups as it has choices, or quarters of its range), less what chance explains with as many groups: adjusted eta squared.
    """
    done = [trial for trial in trials if trial["value"] is not None]
    if len(done) < _FEWEST:
        return None
    found = {}
    for name in dict.fromkeys(name for trial in done for name in trial["parameters"]):
        # A parameter with a condition is judged among the trials in which it had a value.
        those = [trial for trial in done if name in trial["parameters"]]
        if len(those) >= _FEWEST:
            ranks = _ranks([trial["value"] for trial in those])
            found[name] = _explained(_groups([trial["parameters"][name] for trial in those]), ranks)
    return found


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
