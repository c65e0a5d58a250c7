"""The submit seam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from cordee.runs.folder import RunFolder


class Submitter(ABC):
    """Places a run somewhere and knows whether it is still there.

    Called by the command line only, one call at a time per run. All methods raise SubmitError when the place cannot be
    reached or refuses; none changes the plan.
    """

    @abstractmethod
    def script(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Return exactly what is submitted, as text that a person can read."""

    @abstractmethod
    def submit(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Place the run and return the place's own name for it; a run that is placed already is not placed twice."""

    @abstractmethod
    def active(self, folder: RunFolder) -> bool:
        """Return whether the place still holds the run: waiting or running."""

    @abstractmethod
    def cancel(self, folder: RunFolder) -> None:
        """Take the run away when its supervisor cannot be asked any more."""
