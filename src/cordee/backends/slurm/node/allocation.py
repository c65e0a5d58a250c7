"""A Slurm allocation as the supervisor's place: its nodes, its network, its fate, and new agents on its nodes."""

from __future__ import annotations

import os
import shlex
import time
from typing import Any, Optional

from cordee.backends.slurm.node import job as slurm_job
from cordee.backends.slurm.node.addresses import reachable_address
from cordee.backends.slurm.node.commands import SlurmError, job_record, patiently
from cordee.backends.slurm.node.starters import Starters
from cordee.control.identity import agent_file, alive_here, identity, on_this_host, read_record
from cordee.control.supervisor.allocation import ORPHANED, Allocation
from cordee.control.supervisor.disks.startup import PipeHeart
from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes
from cordee.machine.processes import tree as processes
from cordee.runs.folder import RunFolder, say
from cordee.runs.plan import RunPlan
from cordee.runs.state import RunState

AGENT_SRUN = (
    "srun",
    "--overlap",
    "--no-kill",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--mpi=none",
    "--cpu-bind=none",
    "--mem=0",
    "--ntasks-per-node=1",
)
_BEAT_S = 1.0
# A killed process may need this long to be gone on a node that is busy.
_KILLED_S = 30.0
_ASK_OWNER_S = 300.0


def agent_srun(option: Optional[str]) -> list[str]:
    """Return the srun that starts agents, with the options by which a site's own engine of containers has them begin inside.

    Args:
        option: words as a shell has them.
    """
    return [*AGENT_SRUN, *shlex.split(option or "")]


class SlurmAllocation(Allocation):
    """The allocation that this process runs in.

    Args:
        folder: the run's folder.
        plan: its plan.

    Raises:
        CordeeError: this process runs in no Slurm job.
    """

    def __init__(self, folder: RunFolder, plan: RunPlan) -> None:
        super().__init__(folder, plan)
        here = slurm_job.JobStart.here()
        if here is None:
            raise CordeeError("a supervisor for Slurm was started outside of a job", given="no SLURM_JOB_ID")
        self._here = here
        self._script, self._resubmitted = os.getppid(), False
        processes.be_told_when_parent_dies(ORPHANED)
        environment = plan.step.environment
        option = environment.option if environment is not None else None
        self._starters = Starters(folder, agent_srun(option), os.environ.get("CORDEE_CORES"))
        self._next_beat = 0.0
        self._heart = PipeHeart(os.environ.pop("CORDEE_HEARTBEAT", ""))

    @property
    def allocation(self) -> dict[str, Any]:
        """The job, and how often it had been requeued when this allocation began."""
        return self._here.document()

    def identity(self) -> dict[str, Any]:
        """Return this process' identity, with its allocation, which `began` in UTC epoch seconds."""
        allocation = {**self._here.document(), "began": self._here.started, "node": self._here.node}
        return {**identity(), **allocation, "partition": os.environ.get("SLURM_JOB_PARTITION")}

    def age_s(self) -> float:
        """Return the seconds since the batch script began."""
        return max(0.0, time.time() - self._here.started) if self._here.started else 0.0

    def node_names(self) -> list[str]:
        """Return the names that Slurm gives to the nodes of the job."""
        return expand_nodes(os.environ.get("SLURM_JOB_NODELIST") or os.environ["SLURM_NODELIST"])

    def address(self) -> str:
        """Return the address of this node on the network that the profile names, or the node's own name leads to."""
        return reachable_address(self._here.node, self.plan.network_interface)

    def owner_alive(self, owner: dict[str, Any]) -> bool:
        """Return whether an earlier supervisor still leads the run, from here or from another job.

        One that was left behind by an allocation that is over, this job's before it was requeued, is killed and waited for.
        """
        if on_this_host(owner):
            deadline = time.monotonic() + _KILLED_S
            while alive_here(owner) and _earlier_start(owner, self._here.document()) and time.monotonic() < deadline:
                processes.kill_all([owner["pid"]])
                time.sleep(0.02)
            return alive_here(owner)
        if not owner.get("job") or owner["job"] == self._here.job:
            return False
        return self._holds_nodes(str(owner["job"]))

    def duplicate_of(self, before: RunState) -> Optional[str]:
        """Return the job that was placed for this run and is not this one, as long as it waits or runs."""
        if before.job in (None, self._here.job):
            return None
        return before.job if self._holds_nodes(str(before.job), or_waits=True) else None

    def _holds_nodes(self, job: str, or_waits: bool = False) -> bool:
        record: Optional[dict[str, str]] = None

        def ask() -> str:
            nonlocal record
            record = job_record(job)
            return ""

        patiently(ask, most_s=_ASK_OWNER_S)
        states = ("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "CONFIGURING")
        return record is not None and record.get("JobState") in (*states, *(["PENDING"] if or_waits else []))

    def fate(self) -> str:
        """Ask the controller why this process was told to end."""
        return self._here.fate()

    def go_on(self, how: str) -> dict[str, Any]:
        """Have Slurm run the batch script again."""
        going = self._here.go_on(self.folder, how)
        self._resubmitted = going["how"] == "resubmit"
        return going

    def let_go(self, ended: bool) -> None:
        """End the job whose batch script is gone: Slurm may believe for long that it runs, or queue it again."""
        if os.getppid() == self._script or not (ended or self._resubmitted):
            return
        try:
            self._here.cancel()
        except SlurmError as error:
            say(f"cordee supervisor: job {self._here.job}, whose batch script is gone, cannot be ended: {error}")

    def place(self, folder: RunFolder) -> str:
        """Submit the batch script of another run, unless a job of it waits or runs."""
        return slurm_job.place(folder)

    def replace_agent(self, node: str, incarnation: int) -> None:
        """Start a new agent on the node by `srun`, again and again until one comes or the node leaves the job."""
        self._starters.replace(node, incarnation)

    def agent_gone(self, node: str, incarnation: int) -> bool:
        """Return whether this agent ran on this host and has ended; of other hosts nothing is known, and nothing asked."""
        if node != self._here.node:
            return False
        record = read_record(agent_file(self.folder, node))
        if not record:
            return False
        return record["incarnation"] > incarnation or (on_this_host(record) and not alive_here(record))

    def beat(self) -> None:
        """Write a line into the pipe that the batch script listens at."""
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + _BEAT_S
        self._heart.beat()

    def look_after(self) -> None:
        """Look after agents that are being started."""
        self._starters.look()


def _earlier_start(owner: dict[str, Any], here: dict[str, Any]) -> bool:
    return bool(owner.get("job") == here["job"] and owner.get("requeues", 0) < here["requeues"])
