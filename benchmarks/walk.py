"""How far a reader walks from a loaded job document to its plan: files entered, and how often one that was left is entered again.

`python benchmarks/walk.py FOLDER_OF_A_JOB`: plans the job for this machine and follows every function of Cordée, the first time
that it is called, in the order of calls. What runs while modules are imported does not count. Printed are the walk through all files,
and the one of a reader who stops at the doors of systems: a system and all that it calls count as one place.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import cordee
from cordee.job.load import load_job
from cordee.job.plan.compile import make_plan

PACKAGE = str(Path(cordee.__file__).parent)


class Walk:
    """What `sys.setprofile` calls.

    Attributes:
        files: of functions as they are first called, without repetitions in a row.
        doors: the same where a system is one place.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self.doors: list[str] = []
        self._known: set[Any] = set()
        self._importing = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_name == "<module>":
            self._importing += {"call": 1, "return": -1}.get(event, 0)
        ours = code.co_filename.startswith(PACKAGE) and not code.co_name.startswith(
            "<"
        )  # comprehensions are no functions
        if event != "call" or self._importing or not ours or code in self._known:
            return
        self._known.add(code)
        name = code.co_filename[len(PACKAGE) + 1 :]
        system = _system_of(frame)
        for walk, place in ((self.files, name), (self.doors, system or name)):
            if walk[-1:] != [place]:
                walk.append(place)


def _system_of(frame: FrameType | None) -> str:
    """Return the system that a function is called from or belongs to, empty where there is none."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(f"{PACKAGE}/systems/"):
            return "systems/" + name[len(PACKAGE) + len("/systems/") :].partition("/")[0]
        frame = frame.f_back
    return ""


def main(folder: Path) -> None:
    """Print the walk."""
    loaded = load_job(folder, cluster="local")
    walk = Walk()
    with tempfile.TemporaryDirectory() as runs:
        sys.setprofile(walk)
        try:
            make_plan(loaded, run_id="walk-20261123T000000Z-aaaa", run_folder=Path(runs))
        finally:
            sys.setprofile(None)
    for what, places in (("all files", walk.files), ("systems as one place each", walk.doors)):
        entered = set(places)
        print(*places, sep="\n")
        print(f"{what}: {len(entered)}, and {len(places) - len(entered)} returns to one that was left\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
