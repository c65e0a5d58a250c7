"""Handing a frozen plan to whatever runs it; one small seam, one file per back end."""

from __future__ import annotations

from cordee.job.submit._base import ReleasesHolds, Standing, SubmitsTogether, Submitter
from cordee.job.submit.factory import plan_of, step_of, submitter
from cordee.job.submit.parent import ParentSubmitter
from cordee.runs.children import GRAPH
from cordee.runs.folder import RunFolder

__all__ = [
    "ReleasesHolds",
    "Standing",
    "Submitter",
    "SubmitsTogether",
    "plan_of",
    "step_of",
    "submitter",
    "submitter_of",
]


def submitter_of(folder: RunFolder) -> Submitter:
    """Return the submitter of a run that has been written.

    Raises:
        SubmitError: its plan cannot be read, or this version has no such back end.
    """
    own = submitter(plan_of(folder)["backend"])
    if not (folder.root / GRAPH).is_file():
        return own
    return ParentSubmitter(own)
