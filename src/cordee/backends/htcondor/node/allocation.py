"""One start of a job on HTCondor as the allocation of a supervisor: one machine, whose keeper is the job's first process."""

from __future__ import annotations

import os
import time
from typing import Any, Optional

from cordee.backends.htcondor.node.ads import STARTED, CondorStart
from cordee.backends.local.node.allocation import LocalAllocation
from cordee.control.identity import alive_here, identity
from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder
from cordee.runs.plan import RunPlan


class HTCondorAllocation(LocalAllocation):
    """The start of a job that this process runs in.

    Args:
        folder: the run's folder, in the job's scratch folder.
        plan: its plan.

    Raises:
        CordeeError: this process runs in no job.
    """

    def __init__(self, folder: RunFolder, plan: RunPlan) -> None:
        super().__init__(folder, plan)
        here = CondorStart.here()
        if here is None:
            raise CordeeError("a supervisor for HTCondor was started outside of a job", given="no _CONDOR_JOB_AD")
        self._here = here

    @property
    def allocation(self) -> dict[str, Any]:
        """The job, and how often it had been started before."""
        return self._here.document()

    def identity(self) -> dict[str, Any]:
        """Return this process' identity, with its allocation."""
        return {**identity(), **self._here.document(), "node": self._here.node}

    def age_s(self) -> float:
        """Return the seconds since the job's first process began."""
        return max(0.0, time.time() - float(os.environ.get(STARTED) or time.time()))

    def lost_at(self) -> Optional[float]:
        """Return when the start before this one went, by the job's ad: files have the times at which they came here."""
        return self._here.lost_at

    def node_names(self) -> list[str]:
        """Return the name of the machine."""
        return [self._here.node]

    def owner_alive(self, owner: dict[str, Any]) -> bool:
        """Return whether an earlier supervisor of this start still runs: HTCondor has a job run in one place at a time."""
        return {key: owner.get(key) for key in self._here.document()} == self._here.document() and alive_here(owner)

    def fate(self) -> str:
        """Return that the machine is wanted back: people leave their wishes to end a run in its folder."""
        return "preempted"

    def go_on(self, how: str) -> dict[str, Any]:
        """Return how the run goes on: its first process sees in the journal that it does, and has HTCondor keep the job."""
        return {"how": how, "job": self._here.job}

    def place(self, folder: RunFolder) -> str:
        """Refuse: a job has no way to submit another one."""
        raise CordeeError("a job on HTCondor cannot submit another one", given=folder.id)

    def look_after(self) -> None:
        """Do nothing: where the first process ends, HTCondor ends the job."""
