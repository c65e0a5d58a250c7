"""What other systems may ask of trials: tasks of theirs as a farm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cordee.core.ports.farm import FarmResult
from cordee.job.submit.prepare import create_run, prepare
from cordee.systems.trials.farm_life import follow, submit_run
from cordee.systems.trials.shown import Farm


def run_farm(job: Path, cluster: str, settings: dict[str, Any], runs: Path | None, quiet: bool) -> FarmResult:
    """Submit a job whose document has `[farm]`, and wait for its end (the port `farm`).

    Raises:
        CordeeError: it cannot be planned or submitted, or nothing runs it any more.
    """
    prepared = prepare(str(job), cluster, settings, runs)
    prepared.require_valid()
    folder = create_run(prepared)
    submit_run(folder)
    state = follow(folder, quiet=quiet)
    return FarmResult(folder.id, state.state, Farm(folder.root).document(folder.id))
