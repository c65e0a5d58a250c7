"""The submitter of a back end, and the frozen plan that it is given."""

from __future__ import annotations

from typing import Any

from cordee.core.backends import backend as back_end
from cordee.core.errors import SubmitError
from cordee.core.parts import load
from cordee.job.submit._base import Submitter
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder


def plan_of(folder: RunFolder) -> dict[str, Any]:
    """Return a run's frozen plan.

    Raises:
        SubmitError: it cannot be read.
    """
    try:
        plan = read_json(folder.plan, folder.root)
    except (OSError, ValueError) as error:
        raise SubmitError(f"the plan cannot be read: {error}", given=str(folder.plan)) from error
    if not isinstance(plan, dict) or not isinstance(plan.get("backend"), str):
        raise SubmitError(
            "the plan does not say which back end runs it",
            given=str(folder.plan),
            allowed="a plan.json as `cordee run` writes it",
            next="submit the job again, or remove the folder",
        )
    return plan


def step_of(folder: RunFolder) -> dict[str, Any]:
    """Return the only step of a run's plan, empty when it cannot be read."""
    try:
        step: dict[str, Any] = plan_of(folder)["steps"][0]
    except (SubmitError, LookupError, TypeError):
        return {}
    return step


def submitter(backend: str) -> Submitter:
    """Return the submitter of a back end.

    Raises:
        SubmitError: this version has no such back end.
    """
    made: Submitter = load(back_end(backend).submission)()
    return made
