"""What is told of tasks and trials wherever a run is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder
from cordee.systems.trials.node.task_list import FIRST, FOLDER
from cordee.systems.trials.node.task_states import HALVED
from cordee.telemetry.shown.view import RunView

if TYPE_CHECKING:
    from cordee.systems.trials.shown import Farm
    from cordee.systems.trials.sweeps import Sweep

_MOST_SHOWN = 10


class TasksView(RunView):
    """Counts, what failed, and of a sweep its best trials."""

    def lines(self, folder: RunFolder) -> list[str]:
        if not (folder.root / FOLDER / FIRST).is_file():
            return []
        from cordee.systems.trials.shown import Farm
        from cordee.systems.trials.sweeps import Sweep, is_sweep, trial_words

        try:
            farm, sweep = Farm(folder.root), Sweep(folder) if is_sweep(folder) else None
        except CordeeError as error:
            return [f"tasks       cannot be read: {error.text}"]
        title, *lines = told(farm, sweep)
        trials = [] if sweep is None else sweep.in_order()
        lines += [trial_words(trial) for trial in trials[:_MOST_SHOWN]]
        if len(trials) > _MOST_SHOWN:
            lines.append(f"  and {len(trials) - _MOST_SHOWN} more: `cordee sweep show {folder.id}`")
        return [title.lower(), *lines]


def told(farm: Farm, sweep: Sweep | None) -> list[str]:
    """Return what became of tasks or trials, a title first: counts, what failed, what a sweep found."""
    counts = farm.document("")
    early = sum(trial["state"] == HALVED for trial in sweep.trials) if sweep is not None else 0
    words = f", {early} of them ended early" if early else ""
    lines = [
        "Tasks" if sweep is None else "Trials",
        f"  {counts['done']} of {counts['tasks']} done{words}, {counts['failed']} failed",
    ]
    for row in farm.rows("failed")[:_MOST_SHOWN]:
        why = row.get("text") or row.get("signal") or row.get("reason")
        lines.append(f"  {row['id']}: {why if row.get('code') is None else 'exit code ' + str(row['code'])}")
    return lines + [f"  {line}" for line in _found(sweep)]


def _found(sweep: Sweep | None) -> list[str]:
    """Return what a sweep found, in words."""
    if sweep is None or sweep.best is None:
        return []
    lines = []
    for trial in sweep.front[:_MOST_SHOWN] if len(sweep.goals) > 1 else [sweep.best]:
        values = " ".join(f"{name}={value}" for name, value in trial["parameters"].items())
        pairs = zip(sweep.goals, trial["values"], strict=True)
        reached = ", ".join(f"{metric} = {value:.6g}" for (_, metric), value in pairs)
        lines.append(f"best: {reached}, trial {trial['id']}: {values}")
    shares = sweep.document()["importance"] or {}
    return lines + [f"{name} explains {share:.0%}" for name, share in sorted(shares.items(), key=lambda one: -one[1])]
