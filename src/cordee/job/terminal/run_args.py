"""From a RUN argument to its folder and state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cordee.core.errors import RunNotFound
from cordee.job.terminal.options import recordings_folders, runs_folders
from cordee.runs.folder import RunFolder
from cordee.runs.index import check_link, find_run
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay
from cordee.telemetry.node.recording import is_recorded, recorded_state

F = TypeVar("F", bound=Callable[..., Any])


def run_argument(function: F) -> F:
    """Add RUN: an id, the beginning of one, a path, or `last`."""
    return click.argument("run", default="last", required=False)(function)


def found(run: str, runs: str | None, *, recordings: bool = False) -> RunFolder:
    """Return the folder of RUN.

    Args:
        recordings: whether it may be the folder, or the name, of a recording.

    Raises:
        RunNotFound: no run answers to it.
        RunFolderError: it is a link that another user made.
    """
    try:
        return find_run(run, *runs_folders(runs))
    except RunNotFound:
        for path in [Path(run), *(folder / run for folder in recordings_folders(runs))] if recordings else []:
            folder = RunFolder(path.absolute())
            if is_recorded(folder):
                check_link(folder.root)
                return folder
        raise


def state_of(folder: RunFolder) -> RunState:
    """Return the state of a run or a recording now."""
    return recorded_state(folder) or replay(read_journal(folder.journal), folder.id)
