"""How often to save: what saves cost against what failures cost, by what the runs beside this one have seen.

Young (1974) and Daly (2006): the time between saves that loses least is sqrt(2 x cost of a save x mean time between failures).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cordee.core.findings import Finding
from cordee.core.units import format_duration
from cordee.runs.folder import RunFolder
from cordee.runs.index import kept_of_runs
from cordee.runs.journal import read_journal
from cordee.runs.state import replay

if TYPE_CHECKING:
    from cordee.systems.checkpoints.pace.view import StorageView

CACHE, SCHEMA = ".failures.json", "cordee.failures/1"
_LEAST_ATTEMPT_S = 60.0
_LEAST_FAILURES = 3
_TOO_FAR = 2.0
# Of the time of a training: what its saves may cost before another way is worth a word.
_MUCH_LOST = 0.05
_NO_FAILURE = ("finished", "cancelled", "segment", "superseded", "stopped")


class FailureRate(NamedTuple):
    """What runs have seen: failures of attempts that had trained for a minute, and the time that their nodes trained."""

    failures: int
    node_s: float

    def between_s(self, nodes: int) -> float | None:
        """Return the mean time between failures of a job on so many nodes; None where fewer than three failures are known."""
        return self.node_s / self.failures / max(1, nodes) if self.failures >= _LEAST_FAILURES else None


def best_interval_s(cost_s: float, between_s: float) -> float:
    """Return the time between saves that loses least.

    Args:
        cost_s: that the training loses to one save.
        between_s: mean time between failures.
    """
    return math.sqrt(2 * cost_s * between_s)


def failure_rate(runs: Path) -> FailureRate:
    """Return the failures of all runs in a folder; what has not changed is not read again."""
    kept = kept_of_runs(runs, CACHE, SCHEMA, _seen, lambda one: isinstance(one, dict) and len(one) == 2)
    seen = [summary for _, summary in kept]
    return FailureRate(sum(int(one["failures"]) for one in seen), sum(float(one["node_s"]) for one in seen))


def _seen(folder: RunFolder) -> dict[str, Any]:
    state = replay(read_journal(folder.journal), folder.id)
    nodes = max(1, sum(node.role == "active" for node in state.nodes))
    ended = [one for one in state.attempts if one.get("ended_at", 0) - one["started_at"] >= _LEAST_ATTEMPT_S]
    failures = sum(one["outcome"] not in _NO_FAILURE for one in ended)
    return {"failures": failures, "node_s": nodes * sum(one["ended_at"] - one["started_at"] for one in ended)}


def beside_advice(view: StorageView) -> Finding | None:
    """Return that the next run should save beside the training, where this one lost much to waiting for its saves; else None."""
    lost_s = sum(dent.lost_s or 0.0 for dent in view.dents if dent.visible)
    if view.training_s <= 0 or lost_s < _MUCH_LOST * view.training_s:
        return None
    share = min(1.0, lost_s / view.training_s)
    text = f"the training waited {format_duration(lost_s)} for its saves, {100 * share:.2g} % of its time"
    what = 'asynchronous = true in [checkpoint], or tiers = ["memory", "shared"], before the next run'
    return Finding(text, "info", "checkpoint-waits", given=f"{len(view.saves)} saves", next=what)


def interval_advice(view: StorageView, rate: FailureRate, nodes: int) -> Finding | None:
    """Return how often to save instead, None where the run's own choice is near the best or too little is known."""
    costs = [
        dent.lost_s if dent.visible and dent.lost_s is not None else save.snapshot_s or 0.0
        for save, dent in zip(view.saves, view.dents, strict=True)
        if save.snapshot_s is not None or dent.lost_s is not None
    ]
    gaps = [
        later.begin - one.begin
        for one, later in zip(view.saves, view.saves[1:], strict=False)
        if one.begin is not None and later.begin is not None and one.attempt == later.attempt
    ]
    between_s = rate.between_s(nodes)
    cost_s = float(np.median(costs)) if costs else 0.0
    if between_s is None or not gaps or cost_s <= 0:
        return None
    usual_s, best_s = float(np.median(gaps)), best_interval_s(cost_s, between_s)
    if usual_s <= 0 or 1 / _TOO_FAR <= usual_s / best_s <= _TOO_FAR:
        return None

    def share(interval_s: float) -> float:
        return cost_s / interval_s + interval_s / 2 / between_s

    of = "1 node" if nodes == 1 else f"{nodes} nodes"
    text = (
        f"a save costs {cost_s:.3g} s and there is one every {format_duration(usual_s)}; with a failure every "
        f"{format_duration(between_s)} on {of} ({rate.failures} in the runs of this folder) one every {format_duration(best_s)} "
        f"loses least: {100 * share(best_s):.2g} % of the time instead of {100 * share(usual_s):.2g} %"
    )
    what = f'[checkpoint] every = "{max(1, round(best_s))}s"'
    return Finding(text, "info", "checkpoint-interval", given=format_duration(usual_s), next=what)
