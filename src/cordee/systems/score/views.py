"""A run's score as it is shown: computed in a process of its own so that pages stay quick, kept until the run has gone on.

`python -m cordee.systems.score.views FOLDER` prints the document of `cordee score --json`; nothing is written into the folder.
"""

from __future__ import annotations

import json
import os
import sys

from cordee.core.errors import CordeeError
from cordee.telemetry.shown.computed_answers import ComputedDocuments
from cordee.telemetry.shown.kept_data import KeptData

_NICE = 10


class Scores(ComputedDocuments):
    """The scores of runs, one computed at a time."""

    module, what, command = "cordee.systems.score.views", "scoring", "cordee score"

    def known(self, run: str) -> float | None:
        """Return a run's score where it was computed already."""
        value = (self.found(run) or {}).get("score")
        return float(value) if isinstance(value, (int, float)) else None


def data_sets() -> tuple[KeptData, ...]:
    """Return what a scoring leaves."""
    from cordee.systems.score.result import Caps, Diagnosis, ScoreShares
    from cordee.systems.score.trace.model import ScoredDevice, ScoredJob

    return (
        KeptData(
            "score",
            "The score",
            "report/report.json (in short)",
            "JSON, `cordee.score/1`; ratios are 0-1, what is not known is null",
            "`cordee score RUN --json`; `/api/runs/RUN/score`",
            "How well the GPUs (where there are none, the cores) were used, and why not better.",
            {
                "": ScoreShares,
                "job.": ScoredJob,
                "devices[].": ScoredDevice,
                "diagnosis[].": Diagnosis,
                "caps[].": Caps,
            },
        ),
    )


def main(folder: str) -> None:
    """Print the score of a run or a recording, or the error document that says why there is none."""
    os.nice(_NICE)
    from cordee.systems.score.document import document
    from cordee.systems.score.load import load
    from cordee.systems.score.score import score

    try:
        found = document(score(load(folder)))
    except CordeeError as error:
        found = error.document()
    json.dump(found, sys.stdout, allow_nan=False, default=str)


if __name__ == "__main__":
    main(sys.argv[1])
