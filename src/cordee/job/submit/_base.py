"""The submit seam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from cordee.runs.folder import RunFolder


@dataclass(frozen=True)
class Standing:
    """Where a run stands with its place.

    Attributes:
        state: waiting (to be given nodes), held (in the queue until somebody releases it), running, suspended (it has its
            nodes and its processes are stopped), gone (the place holds nothing of it), or unknown (the place could not be
            asked).
        job: the place's own name for it, None when it has none.
        reason: why it waits, how it ended, or why the place could not be asked, in the place's words.
        gone_s: for how long it has been seen gone, in seconds; something inside may yet bring it back at first.
        at: when the place said so, UTC epoch seconds; None: now.
        next: what to do about a job that is held or suspended.
        releasable: whether the place held the job by itself after it could not start it.
        final: whether the place keeps records of how jobs ended, and has this one's: nothing brings it back.
        cut_off: whether it is gone and had its nodes until then: it may have taken that for its nodes' being wanted back.
        idle_since: the last sign of life of a run that does not run, or when it was queued, UTC epoch seconds.
    """

    state: Literal["waiting", "held", "running", "suspended", "gone", "unknown"]
    job: str | None = None
    reason: str = ""
    gone_s: float = 0.0
    at: float | None = None
    next: str = ""
    releasable: bool = False
    idle_since: float | None = None
    final: bool = False
    cut_off: bool = False

    @property
    def queued(self) -> bool:
        """Whether it is in the queue, held or not."""
        return self.state in ("waiting", "held")


class Submitter(ABC):
    """Places a run somewhere and knows whether it is still there.

    Called by the command line only, one call at a time per run. `submit` and `cancel` raise SubmitError when the place
    refuses or cannot be reached for long; `standings` never raises for that, it says unknown. None changes the plan.

    Attributes:
        script_name: the file in the run's `submit/` folder that holds what was submitted.
        poll_s: how often it makes sense to ask where a run stands, in seconds.
        keeps_place: whether a run that has ended may take its time to be sealed where it ran: nobody waits for the place.
    """

    script_name = "commands.txt"
    poll_s = 1.0
    keeps_place = False

    @abstractmethod
    def script(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Return exactly what is submitted, as text that a person can read."""

    @abstractmethod
    def submit(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Place the run and return the place's own name for it; a run that is placed already is not placed twice."""

    @abstractmethod
    def standings(self, folders: list[RunFolder], *, age_s: float = 30.0) -> list[Standing]:
        """Return where runs stand, in their order, with one question to the place.

        Args:
            folders: runs of this back end.
            age_s: an answer of this age is good enough; 0 asks now.
        """

    @abstractmethod
    def cancel(self, folder: RunFolder) -> None:
        """Take the run away when its supervisor cannot be asked any more, or has not started yet."""

    def would_lose(self, folder: RunFolder) -> str:
        """Return what of a run that waits only the place has, and `cancel` would lose; empty: nothing."""
        return ""

    def not_home(self, folders: list[RunFolder]) -> dict[str, Standing]:
        """Return where the jobs of runs stand that have ended and are still in the queue, by the run's id: what they made is not here."""
        return {}

    def standing(self, folder: RunFolder, *, age_s: float = 30.0) -> Standing:
        """Return where one run stands."""
        return self.standings([folder], age_s=age_s)[0]

    def active(self, folder: RunFolder) -> bool:
        """Return whether the place still holds the run, or may hold it."""
        return self.standing(folder).state != "gone"


@runtime_checkable
class SubmitsAfter(Protocol):
    """A place whose queue holds a run until another job of it has succeeded."""

    def submit_after(self, folder: RunFolder, plan: dict[str, Any], job: str) -> str:
        """Place the run as `submit` does; it starts once the job has succeeded, and is taken out of the queue where that fails."""


@runtime_checkable
class StartsChildren(Protocol):
    """A place whose jobs cannot submit others: something else has to start what comes next of a run's children."""

    def start_children(self, folder: RunFolder) -> None:
        """Have the children of a run started when it is their turn, whether anybody looks or not; may be repeated."""

    def starts_nothing(self, folder: RunFolder) -> str:
        """Return why what comes next of a run starts only when somebody looks; empty: it starts."""


@runtime_checkable
class SubmitsTogether(Protocol):
    """A place that takes many runs of one parent at once."""

    def submit_together(self, folders: list[RunFolder], plans: list[dict[str, Any]]) -> dict[str, str]:
        """Place the first of these runs, as `submit` does, with all that ask for the same; return the names of their jobs, by run."""

    def cancel_waiting(self, folders: list[RunFolder]) -> list[RunFolder]:
        """Take those of these runs away that have not started yet, as `cancel` does, and return them."""


@runtime_checkable
class ReleasesHolds(Protocol):
    """A place that holds a job by itself after it could not start it, and lets the job's owner release it."""

    def release(self, job: str) -> bool:
        """Release a job that the place still holds by itself; False: it did not, or the place does not answer now.

        Raises:
            CordeeError: the place refuses, or whether it took the release is not known.
        """
