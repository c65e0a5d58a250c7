"""A Slurm allocation as the supervisor's place: its nodes, its network, its fate, and new agents on its nodes."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import time
from typing import Any, Optional

from cordee.errors import CordeeError
from cordee.node import processes
from cordee.node.addresses import reachable_address
from cordee.node.allocation import Allocation
from cordee.node.identity import agent_file, alive_here, identity, on_this_host, read_record
from cordee.runs.folder import RunFolder, say
from cordee.runs.state import RunState
from cordee.slurm import expand_nodes, job_record, patiently
from cordee.starting import module_argv
from cordee.supervise.place import Place

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
_FIRST_RETRY_S = 5.0
_LONGEST_RETRY_S = 120.0


def agent_srun(plan: dict[str, Any]) -> list[str]:
    """Return the srun that starts agents, which a site's own engine of containers has begin inside, if it is to."""
    environment = plan["steps"][0].get("environment") or {}
    return [*AGENT_SRUN, *([environment["option"]] if environment.get("option") else [])]


class SlurmPlace(Place):
    """The allocation that this process runs in.

    Args:
        folder: the run's folder.
        plan: its plan.

    Raises:
        CordeeError: this process runs in no Slurm job.
    """

    chains = True

    def __init__(self, folder: RunFolder, plan: dict[str, Any]) -> None:
        super().__init__(folder, plan)
        here = Allocation.here()
        if here is None:
            raise CordeeError("a supervisor for Slurm was started outside of a job", given="no SLURM_JOB_ID")
        self._here = here
        processes.be_told_when_parent_dies(signal.SIGTERM)
        self._starters: dict[str, _Starter] = {}
        self._next_beat = 0.0
        self._heartbeat = _pipe(os.environ.pop("CORDEE_HEARTBEAT", ""))

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
        return reachable_address(self._here.node, self.plan.get("network_interface"))

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
        return self._here.go_on(self.folder, how)

    def replace_agent(self, node: str, incarnation: int) -> None:
        """Start a new agent on the node by `srun`, again and again until one comes or the node leaves the job."""
        if node not in self._starters or self._starters[node].done:
            self._starters[node] = _Starter(self.folder, agent_srun(self.plan), node, incarnation)

    def agent_gone(self, node: str, incarnation: int) -> bool:
        """Return whether a newer agent is recorded for the node, or this one ran on this host and has ended."""
        record = read_record(agent_file(self.folder, node))
        if not record:
            return False
        return record["incarnation"] > incarnation or (on_this_host(record) and not alive_here(record))

    def beat(self) -> None:
        """Write a line into the pipe that the batch script listens at."""
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + _BEAT_S
        if self._heartbeat is not None:
            try:
                # A full pipe, which nobody reads, must not hold the supervisor up.
                if select.select([], [self._heartbeat], [], 0)[1]:
                    os.write(self._heartbeat, b"\n")
            except OSError:
                pass

    def look_after(self) -> None:
        """Look after agents that are being started."""
        for starter in self._starters.values():
            starter.look()


def _pipe(number: str) -> Optional[int]:
    """Return the descriptor of the pipe that this process was given; None where there is none."""
    try:
        return int(number) if stat.S_ISFIFO(os.fstat(int(number)).st_mode) else None
    except (OSError, ValueError):
        return None


def _earlier_start(owner: dict[str, Any], here: dict[str, Any]) -> bool:
    return bool(owner.get("job") == here["job"] and owner.get("requeues", 0) < here["requeues"])


class _Starter:
    """Starts one node's agent until it is there."""

    def __init__(self, folder: RunFolder, srun: list[str], node: str, incarnation: int) -> None:
        self._folder, self._srun, self._node, self._incarnation = folder, srun, node, incarnation
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._pause = _FIRST_RETRY_S
        self._next = 0.0
        self.done = False

    def look(self) -> None:
        """Start it when it is due; stop when another agent has come."""
        if self.done:
            return
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._process = None
            self._next = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_RETRY_S)
            say(f"cordee supervisor: the agent of {self._node} ended with {code}")
        record = read_record(agent_file(self._folder, self._node))
        if record.get("incarnation", 0) > self._incarnation:
            self.done = True
        elif time.monotonic() >= self._next:
            self._start()

    def _start(self) -> None:
        agent = module_argv("cordee.node.agent", "--folder", str(self._folder.root))
        where = ["--nodes=1", "--ntasks=1", f"--nodelist={self._node}"]
        if os.environ.get("CORDEE_CORES"):
            where.append(f"--cpus-per-task={os.environ['CORDEE_CORES']}")
        try:
            with open(self._folder.control / "agents.log", "ab") as log:
                self._process = subprocess.Popen(
                    [*self._srun, *where, *agent, "--replaces", str(self._incarnation)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            say(f"cordee supervisor: cannot start an agent on {self._node}: {error}")
            self._next = time.monotonic() + self._pause
