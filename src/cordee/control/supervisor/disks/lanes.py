"""Where a supervisor touches disks: never on its loop, so that it hears its nodes and shows that it lives whatever a disk does."""

from __future__ import annotations

from typing import Callable

from cordee.runs.lane import Inline, Lane


class Lanes:
    """One lane for each thing that must not wait for the others.

    Args:
        make: makes a lane of a name.

    Attributes:
        make: the same.
        writing: journal and block log, in their order.
        looking: who owns the run, requests, records of processes.
        checkpoints: the checkpoint folder, which may lie on another file system.
    """

    def __init__(self, make: Callable[[str], Inline] = Lane) -> None:
        self.make = make
        self.writing = make("cordee-writing")
        self.looking = make("cordee-looking")
        self.checkpoints = make("cordee-checkpoints")

    @property
    def busy_s(self) -> float:
        """For how many seconds the run folder's disk has not answered."""
        return max(self.writing.busy_s, self.looking.busy_s)
