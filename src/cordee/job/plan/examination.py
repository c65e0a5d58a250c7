"""The port by which a plan asks systems: what they bring, their part of the plan, and what they find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.findings import Finding
from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan


class ShownPaths(NamedTuple):
    """Paths of the host that ranks must see at the same places, also inside a container.

    Attributes:
        what: what lies there, in words: `the data set images`.
        key: of the document, which findings about it point at.
        places: absolute paths.
    """

    what: str
    key: str
    places: tuple[str, ...]


class Contribution(NamedTuple):
    """What a system brings to every rank: paths to see, variables, and what was found on the way."""

    shown: tuple[ShownPaths, ...] = ()
    env: Mapping[str, str] = {}
    findings: Sequence[Finding] = ()


class Examination:
    """One system's examination of one job. A plan makes it once, calls `contribute` of all systems, then `part` of all, then
    `judge` of all, each once and in the order of the registry. Nothing is written; a finding of severity `error` stops the job.

    Attributes:
        field: of the plan's step that `part` fills; empty: it stands under the system's name in `systems` there.
    """

    field = ""

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        self.loaded, self.run_folder = loaded, run_folder

    def contribute(self) -> Contribution:
        """Return what ranks must see and find set, whatever other systems do."""
        return Contribution()

    def part(self, shown: Sequence[ShownPaths]) -> tuple[Any, list[Finding]]:
        """Return the system's part of the plan (None: none) and what is to be said about it.

        Args:
            shown: what all systems contributed.
        """
        return None, []

    def judge(self, plan: Plan) -> list[Finding]:
        """Return what is to be said about the whole plan."""
        return []
