"""What a system says of a run wherever runs are told: `cordee show`, the run document, reports, pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cordee.core import registry
from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.runs.folder import RunFolder
from cordee.runs.state import RunState

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run


class RunView:
    """A system's view of a run, from its journal and its plan: it is made often, so it reads nothing.

    Args:
        state: the run's.
        step: the plan's, empty where the plan cannot be read.
    """

    def __init__(self, state: RunState, step: Mapping[str, Any]) -> None:
        self.state, self.step = state, step

    def document(self) -> dict[str, Any]:
        """Return keys of the run document, and of the report's, that are this system's own."""
        return {}

    def facts(self) -> list[tuple[str, str]]:
        """Return (name, text) for people: a word, and what stands behind it."""
        return []

    def lines(self, folder: RunFolder) -> list[str]:
        """Return what `cordee show` prints below the facts, a title first; this alone may read the run's folder."""
        return []

    def findings(self) -> list[Finding]:
        """Return what is worth telling of what the journal says."""
        return []

    def findings_of_samples(self, run: Run) -> list[Finding]:
        """Return what is worth telling of the samples of a run that has ended."""
        return []


def views_of(state: RunState, step: Mapping[str, Any]) -> list[RunView]:
    """Return the views of all systems of Cordée, and of those of other packages that the plan names.

    Where packages cannot be loaded a run is told without what they would say: `cordee check` and the report name them.
    """
    try:
        systems = registry.telling(step.get("systems") or ())
    except CordeeError:
        systems = registry.built_in()
    return [load(system.views)(state, step) for system in systems if system.views]
