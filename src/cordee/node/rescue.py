"""What an agent in a Slurm job does when no supervisor can: it takes over its node, and brings the run back to life."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Optional

from cordee.errors import CordeeError
from cordee.node import processes
from cordee.node.allocation import Allocation
from cordee.node.identity import agent_file, alive_here, identity, read_record
from cordee.runs.folder import RunFolder, say, write_atomically
from cordee.runs.journal import read_journal
from cordee.runs.plan import Plan
from cordee.runs.state import replay
from cordee.slurm import expand_nodes, run_command

_FATE_S = 10.0
_POLL_S = 0.5
_ASKING_NODES = 3
# A look is two questions: with one look a minute by all agents together, the controller gets two a minute.
_LOOK_S = 60.0
_LATER_S = 300.0
_EACH_LATER_S = 0.5
_BRINGS_BACK_S = 120.0
_ORPHAN_S = 3600.0
# SlurmdTimeout is five minutes where a site has not changed it.
_NOTICE_S = 330.0
_ANSWER = "scheduler.json"
_BROUGHT_BACK = "brought back"  # by an agent, a moment ago


def claim_node(folder: RunFolder, here: Allocation, replaces: int) -> Optional[int]:
    """Record this process as the node's agent and return its incarnation; None when another serves the node well.

    Args:
        folder: the run's folder.
        here: the allocation that this process runs in.
        replaces: the greatest incarnation that is to make room; 0 when none is known to be bad.
    """
    path = agent_file(folder, here.node)
    record = read_record(path)
    earlier = int(record.get("incarnation", 0))
    if record and alive_here(record):
        same = {key: record.get(key) for key in here.document()} == here.document()
        if same and earlier > replaces:
            return None
        processes.kill_all([record["pid"]])
    incarnation = max(earlier, replaces) + 1
    write_atomically(path, json.dumps({**identity(), **here.document(), "incarnation": incarnation}))
    return incarnation


class Rescue:
    """Has the scheduler run a job again whose supervisor, or the node that it was on, is gone.

    Args:
        folder: the run's folder.
        plan: its plan.
        here: the allocation that this agent runs in.
    """

    def __init__(self, folder: RunFolder, plan: Plan, here: Allocation) -> None:
        self._folder, self._here = folder, here
        self._next = plan.step.segment.next

    async def terminated(self) -> None:
        """Slurm told this agent to end: when that is because the batch script was killed, the run must come back."""
        index = self._index()
        if index >= _ASKING_NODES:
            return
        loop = asyncio.get_running_loop()
        await asyncio.sleep(index * _POLL_S)
        deadline, pause = loop.time() + _FATE_S, _POLL_S
        fate = "unknown"
        while fate in ("unknown", "running") and loop.time() < deadline:
            fate = await loop.run_in_executor(None, self._here.fate)
            await asyncio.sleep(0.0 if fate == "killed" else pause)
            pause *= 2.0
        if fate == "killed":
            await loop.run_in_executor(None, self._bring_back)

    async def orphaned(self) -> None:
        """No supervisor came back: the lowest surviving node asks for the job to be run again, the others wait longer.

        A job that is requeued before Slurm has noticed the loss cannot start until then, and Slurm 22.05 may hold it as
        one that no nodes can run: so its notice comes first. A controller that does not answer is asked for an hour. What
        one agent was told lies in the run's folder for the others, so that all of thousands together ask once a minute; the
        further down its node is in the list, the later and the more rarely an agent looks there.
        """
        loop = asyncio.get_running_loop()
        began, index = loop.time(), self._index()
        pause = _pause_s(index, self._nodes())
        await asyncio.sleep(_first_look_s(index))
        while True:
            fate, host_lost = await loop.run_in_executor(None, self._look)
            waited = loop.time() - began
            if fate in ("unknown", _BROUGHT_BACK):
                over = waited > _ORPHAN_S
            else:
                over = fate not in ("running", "preempted") or host_lost or waited >= _NOTICE_S
            if over:
                break
            await asyncio.sleep(pause)
        say(f"cordee agent {self._here.node}: no supervisor is left in job {self._here.job}, which is {fate}")
        if fate in ("running", "preempted", "killed", "node_lost"):
            self._tell(_BROUGHT_BACK, False, time.time())
            await loop.run_in_executor(None, self._bring_back)

    def _look(self) -> tuple[str, bool]:
        """Return what the controller says of the allocation, see `Allocation.look`; what another agent was told a moment ago
        is taken, and what this one is told is left for others.
        """
        answer, here, now = read_record(self._folder.control / _ANSWER), self._here.document(), time.time()
        if {key: answer.get(key) for key in here} == here:
            fresh_s = _BRINGS_BACK_S if answer["fate"] == _BROUGHT_BACK else 0.9 * _LOOK_S
            if 0.0 <= now - answer["at"] < fresh_s:
                return str(answer["fate"]), bool(answer["host_lost"])
        fate, host_lost = self._here.look()
        self._tell(fate, host_lost, now)
        return fate, host_lost

    def _tell(self, fate: str, host_lost: bool, at: float) -> None:
        document = {**self._here.document(), "at": at, "fate": fate, "host_lost": host_lost}
        try:
            write_atomically(self._folder.control / _ANSWER, json.dumps(document))
        except CordeeError as error:
            say(f"cordee agent {self._here.node}: {error}")

    def _bring_back(self) -> None:
        try:
            if replay(read_journal(self._folder.journal), self._folder.id).ended:
                return
            if self._next == "forbidden":
                run_command(["scancel", self._here.job])
                return
            going = self._here.go_on(self._folder, self._next)
            say(f"cordee agent {self._here.node}: the supervisor is lost, job {going['job']}: {going['how']}")
            if going["how"] == "resubmit":
                run_command(["scancel", self._here.job])
        except (CordeeError, OSError) as error:
            say(f"cordee agent {self._here.node}: cannot bring the run back: {error}")

    def _index(self) -> int:
        try:
            return self._names().index(self._here.node)
        except ValueError:
            return _ASKING_NODES

    def _nodes(self) -> int:
        return len(self._names())

    @staticmethod
    def _names() -> list[str]:
        try:
            return expand_nodes(os.environ.get("SLURM_JOB_NODELIST", ""))
        except CordeeError:
            return []


def _first_look_s(index: int) -> float:
    """Return after how long the agent of the node at `index` looks first: the second node's, as the supervisor was on the first."""
    return _LOOK_S * max(0, index - 1) if index <= _ASKING_NODES else _NOTICE_S + index * _EACH_LATER_S


def _pause_s(index: int, nodes: int) -> float:
    """Return the pause between looks: of those further down one that all of them together share."""
    return _LOOK_S if index <= _ASKING_NODES else max(_LATER_S, nodes * _EACH_LATER_S)
