"""What a system says in the report of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from cordee.runs.state import RunState

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

# After the run's phases; after what ranks logged; before the use of resources; before the nodes.
Where = Literal["phases", "logged", "use", "nodes"]
PLACES: tuple[Where, ...] = get_args(Where)


@dataclass(frozen=True)
class Reported:
    """The run that is reported.

    Attributes:
        run: its telemetry and its folder.
        state: what its journal says.
        step: its plan's, empty where the plan cannot be read; secrets are masked.
        sampled: whether anything was sampled.
    """

    run: Run
    state: RunState
    step: Mapping[str, Any]
    sampled: bool


class Section:
    """A part of the report, made once and then asked for each form; what it raises when it is made is told as missing.

    Attributes:
        name: what is missing where it cannot be made.
        key: of report.json, empty: none. Null there where the section cannot be made.
        place: where it stands among the others.
    """

    name = ""
    key = ""
    place: Where = "logged"

    def __init__(self, reported: Reported) -> None:
        self.reported = reported

    @property
    def missing(self) -> list[str]:
        """What it cannot show, and why."""
        return []

    def document(self) -> Any:
        """Return what stands below the key; None: nothing is known."""
        return None

    def facts(self) -> list[tuple[str, str]]:
        """Return (name, text) for the head of the report as text."""
        return []

    def lines(self) -> list[str]:
        """Return its part of the report as text, its title first, no line longer than 80 characters."""
        return []

    def style(self) -> str:
        """Return what its part of the page needs beside the style that all pages have; asked where it shows something there."""
        return ""

    def html(self) -> str:
        """Return its part of the page, safe to be put into it; empty: it has nothing to show there."""
        return ""

    @property
    def origin(self) -> float | None:
        """When the run's supervisor started, UTC epoch seconds: what charts count from."""
        return self.reported.state.started_at
