"""Writes trials to MLflow and W&B, each as a run of its own: a child that speaks JSON lines.

Its first line is the sampler's (`run`, `goals`, `track`, `trials`); each `{"tell": trial}` is answered by `{}` or `{"problem"}`. Servers and
keys are those of the environment (`MLFLOW_TRACKING_URI`, `WANDB_API_KEY` and the like). A trial is written once, however often this is started.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from cordee.core.secrets import masked_text
from cordee.machine.processes.parent import die_with_parent

_ENDED = ("done", "halved", "failed")
_TAG = "cordee.trial"


class MlflowTrials:
    """Runs of MLflow in an experiment that has the sweep's name."""

    def __init__(self, run: str) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        found = self._client.get_experiment_by_name(run)
        self._experiment = found.experiment_id if found is not None else self._client.create_experiment(run)
        self._there = {one.data.tags.get(_TAG) for one in self._all()}

    def _all(self) -> list[Any]:
        found: list[Any] = []
        token = None
        while True:
            page = self._client.search_runs([self._experiment], max_results=1000, page_token=token)
            found += page
            token = page.token
            if not token:
                return found

    def write(self, trial: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Write one trial."""
        if str(trial["id"]) in self._there:
            return
        tags = {_TAG: str(trial["id"]), "cordee.state": str(trial["state"])}
        made = self._client.create_run(self._experiment, run_name=f"trial-{trial['id']}", tags=tags).info.run_id
        for name, value in trial["parameters"].items():
            self._client.log_param(made, name, value)
        for name, value in values.items():
            self._client.log_metric(made, name, value)
        self._client.set_terminated(made, "FAILED" if trial["state"] == "failed" else "FINISHED")
        self._there.add(str(trial["id"]))


class WandbTrials:
    """Runs of W&B in a group that has the sweep's name; the project is that of `WANDB_PROJECT`, else `cordee`."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._there: set[int] = set()

    def write(self, trial: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Write one trial; its id is the same each time, so that W&B has it once."""
        import wandb

        if trial["id"] in self._there:
            return
        project, name = os.environ.get("WANDB_PROJECT", "cordee"), f"{self._run}-{trial['id']}"
        config = {**trial["parameters"], "state": trial["state"]}
        # Its output is caught by nobody: standard output is for answers.
        settings = wandb.Settings(console="off", silent=True)
        made = wandb.init(
            project=project, group=self._run, id=name, name=name, resume="allow", config=config, settings=settings
        )
        made.log(dict(values))
        made.finish(exit_code=int(trial["state"] == "failed"))
        self._there.add(trial["id"])


KINDS: Mapping[str, Callable[[str], Any]] = {"mlflow": MlflowTrials, "wandb": WandbTrials}


def main() -> None:
    """Answer until the input ends."""
    die_with_parent()
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    begin = json.loads(sys.stdin.readline() or "{}")
    places = [KINDS[name](begin["run"]) for name in begin["track"]]

    def write(trial: Mapping[str, Any]) -> dict[str, str]:
        metrics = [metric for _, metric in begin["goals"]]
        values = dict(zip(metrics, trial["values"], strict=True)) if trial["values"] else {}
        try:
            for place in places:
                place.write(trial, values)
        except Exception as error:  # whatever a library of somebody else raises: the sweep goes on
            return {"problem": masked_text(f"trial {trial['id']}: {type(error).__name__}: {error}")[:400]}
        return {}

    def answer(line: Mapping[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    before = [write(trial) for trial in begin["trials"] if trial["state"] in _ENDED]
    answer(next((one for one in before if one), {}))
    while line := sys.stdin.readline():
        answer(write(json.loads(line)["tell"]))


if __name__ == "__main__":
    main()
