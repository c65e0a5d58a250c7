"""The port by which a plan asks systems: their part of the plan, what ranks must see, and what they find."""

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
    """What a system brings to a plan.

    Attributes:
        part: its part of the plan; None: none.
        findings: what is to be said about that.
        shown: paths that every rank must see.
        env: variables that every rank must find set.
    """

    part: Any = None
    findings: Sequence[Finding] = ()
    shown: tuple[ShownPaths, ...] = ()
    env: Mapping[str, str] = {}


class Examination:
    """One system's examination of one job. A plan makes it once, calls `contribute` of all systems, then `judge` of all, each once
    and in the order of the registry. Nothing is written; a finding of severity `error` stops the job.

    Attributes:
        field: of the plan's step that its part fills; empty: it stands under the system's name in `systems` there.
        last: whether it contributes after all others, since it needs what they show.
    """

    field = ""
    last = False

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        self.loaded, self.run_folder = loaded, run_folder

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        """Return the system's part of the plan, and what ranks must see and find set.

        Args:
            shown: what the systems before it show.
        """
        return Contribution()

    def judge(self, plan: Plan) -> list[Finding]:
        """Return what is to be said about the whole plan."""
        return []


class Examinations:
    """The systems that a job is about, each asked twice: what it contributes, and at the end for its judgement.

    Attributes:
        env: the variables that they set for every rank.
        parts: of the plan's step, by its fields.
        findings: what they found until now.
    """

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        asked: list[tuple[System, Examination]] = [
            (system, load(system.examine)(loaded, run_folder)) for system in loaded.systems if system.examine
        ]
        brought: dict[str, Contribution] = {}
        shown: tuple[ShownPaths, ...] = ()
        for system, examination in sorted(asked, key=lambda one: one[1].last):
            brought[system.name] = examination.contribute(shown)
            shown += brought[system.name].shown
        self.env = {name: value for system, _ in asked for name, value in brought[system.name].env.items()}
        self.findings = [finding for system, _ in asked for finding in brought[system.name].findings]
        self.parts: dict[str, Any] = {"systems": {}}
        for system, examination in asked:
            part = brought[system.name].part
            if examination.field:
                self.parts[examination.field] = part
            elif part is not None:
                self.parts["systems"][system.name] = part
        self._asked = [examination for _, examination in asked]

    def judged(self, plan: Plan) -> list[Finding]:
        """Return what they say of the whole plan."""
        return [finding for examination in self._asked for finding in examination.judge(plan)]
