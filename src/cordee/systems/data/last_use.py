"""What the last run that read a data set did with it: how the next one has it goes by that."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from cordee.runs.folder import RunFolder
from cordee.runs.index import kept_of_runs
from cordee.runs.journal import read_journal
from cordee.runs.plan import read_plan
from cordee.runs.state import replay
from cordee.systems.data.account import account_of

CACHE, SCHEMA = ".data-use.json", "cordee.data-use/1"
# Who reads less than this of a set reads less than bringing all of it to one node would.
LEAST_EPOCHS = 0.5


class DataUse(NamedTuple):
    """What a run that finished did with a data set: how many epochs of it the training had."""

    run: str
    epochs: float

    def against_staging(self) -> str:
        """Return why it is no use to bring it to the nodes, empty where it is."""
        if self.epochs >= LEAST_EPOCHS:
            return ""
        return f"the last run, {self.run}, trained on {100 * self.epochs:.2g} % of it, and all of it would be copied"


def last_use(runs: Path, place: str) -> DataUse | None:
    """Return what the last finished run in a folder of runs did with what lies at a place; None: none says it."""
    kept = kept_of_runs(runs, CACHE, SCHEMA, _seen, lambda one: isinstance(one, dict))
    for folder, summary in reversed(kept):
        if place in summary:
            return DataUse(folder.id, float(summary[place]))
    return None


def _seen(folder: RunFolder) -> dict[str, Any]:
    """Return the epochs that a finished run trained on, by the place of each data set."""
    state = replay(read_journal(folder.journal), folder.id)
    if state.state != "finished":
        return {}
    try:
        places = {str(one.get("name")): str(one.get("place")) for one in read_plan(folder).step.data}
    except Exception:  # a run of an older or newer Cordée says nothing
        return {}
    accounts = {one.name: one.epochs for one in account_of(state)}
    return {place: accounts[name] for name, place in places.items() if accounts.get(name) is not None}
