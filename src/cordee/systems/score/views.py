"""A run's score as it is shown: computed in a process of its own so that pages stay quick, kept until the run has gone on.

`python -m cordee.systems.score.views FOLDER` prints the document of `cordee score --json`; nothing is written into the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cordee.core.errors import CordeeError
from cordee.machine.processes.starting import module_argv
from cordee.runs.folder import RunFolder
from cordee.telemetry.shown.kept_data import KeptData

EVERY_S = 30.0
_LONGEST_S = 300.0
_MOST_KEPT = 64
_NICE = 10


@dataclass(frozen=True)
class Scored:
    """What came of scoring a run.

    Attributes:
        at: UTC epoch seconds.
        ended: whether the run had ended, so that it stays as it is.
        score: the document, None where `why` says why there is none.
    """

    at: float
    ended: bool
    score: dict[str, Any] | None = None
    why: str = ""
    next: str | None = None


class Scores:
    """The scores of runs, one computed at a time."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Scored] = OrderedDict()
        self._pending: set[str] = set()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "score")
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False

    def known(self, run: str) -> float | None:
        """Return a run's score where it was computed already."""
        found = self._known.get(run)
        value = found.score.get("score") if found is not None and found.score is not None else None
        return float(value) if isinstance(value, (int, float)) else None

    def ask(self, run: str, folder: RunFolder, *, ended: bool) -> tuple[Scored | None, bool]:
        """Return what is known of a run's score, and whether it is being computed; of a run that goes on every 30 s at most."""
        with self._lock:
            found = self._known.get(run)
            fresh = found is not None and (found.ended or (not ended and time.time() - found.at < EVERY_S))
            if not fresh and run not in self._pending and not self._closed:
                self._pending.add(run)
                self._pool.submit(self._compute, run, folder, ended)
            return found, run in self._pending

    def close(self) -> None:
        """End what is being computed."""
        self._closed = True
        child = self._child
        if child is not None:
            child.kill()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compute(self, run: str, folder: RunFolder, ended: bool) -> None:
        try:
            scored = self._run_child(folder, ended)
        except OSError as error:
            scored = Scored(time.time(), False, why=f"scoring could not be started: {error}")
        with self._lock:
            self._pending.discard(run)
            self._known[run] = scored
            self._known.move_to_end(run)
            while len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)

    def _run_child(self, folder: RunFolder, ended: bool) -> Scored:
        argv = module_argv("cordee.systems.score.views", str(folder.root), user_site=True)
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        ) as child:
            self._child = child
            try:
                output, _ = child.communicate(timeout=_LONGEST_S)
            except subprocess.TimeoutExpired:
                child.kill()
                return Scored(
                    time.time(),
                    ended,
                    why=f"scoring took over {_LONGEST_S:.0f} s",
                    next="`cordee score` takes its time",
                )
            finally:
                self._child = None
        try:
            document = json.loads(output)
        except ValueError:
            return Scored(time.time(), ended, why="scoring ended without a result", next="`cordee score` says more")
        if "error" in document:
            return Scored(time.time(), ended, why=str(document["error"]["text"]), next=document["error"].get("next"))
        return Scored(time.time(), ended, score=document)


def data_sets() -> tuple[KeptData, ...]:
    """Return what a scoring leaves."""
    from cordee.systems.score import document
    from cordee.systems.score.result import Caps, Diagnosis, Saturation, ScoreShares
    from cordee.systems.score.trace.model import ScoredDevice, ScoredJob

    return (
        KeptData(
            "score",
            "The score",
            "report/report.json (in short)",
            "JSON, `cordee.score/1`; ratios are 0-1, what is not known is null",
            "`cordee score RUN --json`; `/api/runs/RUN/score`",
            "How well the GPUs (where there are none, the cores) were used, and why not better.",
            "insight",
            (document.document,),
            said=(Saturation, ScoreShares),
            parts={
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
