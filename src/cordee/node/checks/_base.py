"""The check seam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, Mapping, Optional


@dataclass(frozen=True)
class Result:
    """What a check found: `status` is pass, warn, fail, unknown or skip; `evidence` is one sentence."""

    status: str
    evidence: str
    value: Optional[float] = None
    unit: Optional[str] = None
    threshold: Optional[float] = None

    def document(self) -> dict[str, Any]:
        """Return the result as the journal has it, without the check's name and time."""
        return asdict(self)


class Check(ABC):
    """Looks at one thing on the node it runs on, in a process of its own that may be killed at any time.

    An exception means unknown. One check runs at a time.
    """

    version = 1

    @abstractmethod
    def run(self, parameters: Mapping[str, Any], request: Mapping[str, Any]) -> Result:
        """Return what was found; `request` has the ranks' environment (`env`) and their folder (`workdir`)."""


def unknown(evidence: str) -> Result:
    """Return the result of a check that could not run."""
    return Result("unknown", evidence)
