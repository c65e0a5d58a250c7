"""Chooses the values of trials by what earlier ones were worth, by Optuna: a child that speaks JSON lines.

Its first line says what there is: `sampler`, `seed`, `space`, `goals`, and `trials` that are there already, each `{id, parameters, state,
values, reached}`. Then each `{"ask": id}` is answered by `{"id", "parameters"}`, and each `{"tell": trial}` taken. All that it knows it was
told: whoever starts it again loses nothing.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cordee.machine.processes.parent import die_with_parent

# Trials of which nothing was learned yet choose at random.
_FIRST_AT_RANDOM = 10
_OBJECTS_BEFORE_LOOKING = 50_000


class OptunaStudy:
    """A study of Optuna over a space with conditions.

    Args:
        begin: the first line.
    """

    def __init__(self, begin: Mapping[str, Any]) -> None:
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._space = optuna, list(begin["space"])
        self._goals: Sequence[Sequence[str]] = begin["goals"]
        directions: list[Any] = ["maximize" if aim == "max" else "minimize" for aim, _ in self._goals]
        # After a restart the sampler must not choose again what it chose at first.
        sampler = _sampler(optuna, begin["sampler"], int(begin["seed"]) + len(begin["trials"]))
        self._study = optuna.create_study(directions=directions, sampler=sampler)
        self._asked: dict[int, Any] = {}
        self._ended: set[int] = set()
        for trial in begin["trials"]:
            self._take_back(trial)

    def ask(self, number: int) -> dict[str, str]:
        """Return the values of a new trial, as text."""
        trial = self._asked[number] = self._study.ask()
        return self._suggested(trial)

    def tell(self, told: Mapping[str, Any]) -> None:
        """Take how a trial ended: done with values, ended early, or failed."""
        if told["id"] not in self._asked:
            self._take_back(told)  # of another job of the same sweep
            return
        if told["state"] == "running":
            return
        trial = self._asked.pop(told["id"])
        self._ended.add(told["id"])
        states = self._optuna.trial.TrialState
        values = told.get("values")
        if told["state"] == "done" and values:
            self._study.tell(trial, values)
        elif told["state"] == "halved":
            if len(self._goals) == 1:  # of several goals Optuna knows no steps
                for step, value in told.get("reached", ()):
                    if value is not None:
                        trial.report(value, step)
            self._study.tell(trial, state=states.PRUNED)
        else:
            self._study.tell(trial, state=states.FAIL)

    def _take_back(self, told: Mapping[str, Any]) -> None:
        """Take a trial that another life of this child, or another child, has chosen, or that was chosen from another space."""
        known = self._typed(told["parameters"])
        if known is None or told["id"] in self._ended:
            return
        states = self._optuna.trial.TrialState
        state = {"done": states.COMPLETE, "halved": states.PRUNED, "failed": states.FAIL}.get(told["state"])
        if state is None:
            self._study.enqueue_trial(known)
            self._suggested(self._asked.setdefault(told["id"], self._study.ask()))
            return
        self._ended.add(told["id"])
        spaces = {one["name"]: self._distribution(one) for one in self._space if one["name"] in known}
        values = told["values"] if told["state"] == "done" else None
        more = {} if values is None else {"values": values}
        reached = {step: value for step, value in told.get("reached", ()) if value is not None}
        if state == states.PRUNED and len(self._goals) == 1:
            more["intermediate_values"] = reached
        self._study.add_trial(self._optuna.trial.create_trial(params=known, distributions=spaces, state=state, **more))

    def _distribution(self, one: Mapping[str, Any]) -> Any:
        kinds = self._optuna.distributions
        if one["choices"]:
            return kinds.CategoricalDistribution(one["choices"])
        if one["whole"]:
            return kinds.IntDistribution(int(one["low"]), int(one["high"]))
        return kinds.FloatDistribution(one["low"], one["high"], log=one["log"])

    def _typed(self, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        """Return values as Optuna has them; None where they do not lie in the space."""
        found: dict[str, Any] = {}
        for one in self._space:
            text = parameters.get(one["name"])
            if not _holds(one, parameters):
                continue
            if text is None:
                return None
            if one["choices"]:
                if text not in one["choices"]:
                    return None
                found[one["name"]] = text
                continue
            number = float(text)
            slack = 1e-5 * max(abs(one["low"]), abs(one["high"]))
            if not one["low"] - slack <= number <= one["high"] + slack:
                return None
            number = min(max(number, one["low"]), one["high"])
            found[one["name"]] = int(number) if one["whole"] else number
        return found

    def _suggested(self, trial: Any) -> dict[str, str]:
        values: dict[str, str] = {}
        for one in self._space:
            name = one["name"]
            if not _holds(one, values):
                if one["otherwise"] is not None:
                    values[name] = one["otherwise"]
            elif one["choices"]:
                values[name] = trial.suggest_categorical(name, one["choices"])
            elif one["whole"]:
                values[name] = str(trial.suggest_int(name, int(one["low"]), int(one["high"])))
            else:
                values[name] = f"{trial.suggest_float(name, one['low'], one['high'], log=one['log']):.6g}"
        return values


def _optuna() -> Any:
    """Return Optuna; what its import makes stays, and of what trials make little is garbage: nobody need look again and again which."""
    gc.disable()
    import optuna
    import optuna.samplers  # what it loads late

    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_LOOKING)
    gc.enable()
    return optuna


def _holds(one: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    return all(values.get(name) in allowed for name, allowed in one["when"].items())


def _sampler(optuna: Any, name: str, seed: int) -> Any:
    samplers = optuna.samplers
    if name == "tpe":
        return samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=_FIRST_AT_RANDOM)
    kinds = {"gp": "GPSampler", "cma": "CmaEsSampler", "nsga": "NSGAIISampler"}
    return getattr(samplers, kinds[name])(seed=seed)


def missing(sampler: str) -> list[str]:
    """Return the packages that a sampler needs and this Python has not."""
    from importlib.util import find_spec

    needed = {"gp": ("optuna", "scipy", "torch"), "cma": ("optuna", "cmaes")}.get(sampler, ("optuna",))
    return [name for name in needed if find_spec(name) is None]


def main() -> None:
    """Answer until the input ends."""
    die_with_parent()
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer

    def answer(line: Mapping[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    study = OptunaStudy(json.loads(sys.stdin.readline() or "{}"))
    answer({"ready": True})
    while line := sys.stdin.readline():
        said = json.loads(line)
        if "ask" in said:
            answer({"id": said["ask"], "parameters": study.ask(said["ask"])})
        else:
            study.tell(said["tell"])
    os._exit(0)  # nothing is kept, so nothing need be taken down


if __name__ == "__main__":
    main()
