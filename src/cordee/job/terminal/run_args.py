"""From a RUN argument to its folder and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cordee.job.terminal.options import runs_folders
from cordee.runs.folder import RunFolder
from cordee.runs.index import find_run
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay

F = TypeVar("F", bound=Callable[..., Any])


def run_argument(function: F) -> F:
    """Add RUN: an id, the beginning of one, a path, or `last`."""
    return click.argument("run", default="last", required=False)(function)


def found(run: str, runs: str | None) -> RunFolder:
    """Return the folder of RUN.

    Raises:
        RunNotFound: no run answers to it.
    """
    return find_run(run, *runs_folders(runs))


def state_of(folder: RunFolder) -> RunState:
    """Return the run's state now."""
    return replay(read_journal(folder.journal), folder.id)
