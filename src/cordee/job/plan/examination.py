"""The port by which a plan asks systems: what they bring, their part of the plan, and what they find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.core.registry import System
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


class Examinations:
    """The systems that a job is about, asked one after the other: what each contributes, then its part; at the end, its judgement.

    Attributes:
        env: the variables that they set for every rank.
        parts: of the plan's step, by its fields.
        findings: what they found until now.
    """

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        asked: list[tuple[System, Examination]] = [
            (system, load(system.examine)(loaded, run_folder)) for system in loaded.systems if system.examine
        ]
        brought = [examination.contribute() for _, examination in asked]
        shown = tuple(shown for one in brought for shown in one.shown)
        self.env = {name: value for one in brought for name, value in one.env.items()}
        self.findings = [finding for one in brought for finding in one.findings]
        others: dict[str, Any] = {}
        self.parts: dict[str, Any] = {"systems": others}
        for system, examination in asked:
            part, findings = examination.part(shown)
            self.findings += findings
            if examination.field:
                self.parts[examination.field] = part
            elif part is not None:
                others[system.name] = part
        self._asked = [examination for _, examination in asked]

    def judged(self, plan: Plan) -> list[Finding]:
        """Return what they say of the whole plan."""
        return [finding for examination in self._asked for finding in examination.judge(plan)]
