"""What an agent in a Slurm job does when no supervisor can: it takes over its node, and brings the run back to life."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Callable, NamedTuple, Optional

from cordee.backends.slurm.node.job import JobStart
from cordee.control.agent.rescue import RescueClaim
from cordee.control.identity import agent_file, alive_here, identity, read_record
from cordee.control.supervisor.ownership import Ownership
from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes
from cordee.machine.processes import tree as processes
from cordee.runs.folder import RunFolder, say, write_atomically
from cordee.runs.journal import read_journal
from cordee.runs.plan import RunPlan
from cordee.runs.state import replay

# Agents that are told to end have KillWait seconds, 30 where a site has not changed it.
_FATE_S = 10.0
_KILLED_S = 60.0
_POLL_S = 0.5
_AGAIN_S = 4.0
_ASKING_NODES = 3
_UNHEARD_S = 1.0
_UNHEARD_MOST_S = 30.0
# A look is two questions: with one look a minute by all agents together, the controller gets two a minute. One that had no
# answer is a single question.
_LOOK_S = 60.0
_LOOK_APART_S = 10.0
_UNANSWERED_S = 30.0
_LATER_S = 300.0
_EACH_LATER_S = 0.5
_BRINGS_BACK_S = 120.0
_ORPHAN_S = 3600.0
# SlurmdTimeout is five minutes where a site has not changed it.
_NOTICE_S = 330.0
_ANSWER = "scheduler.json"
_BRINGS_BACK = "being brought back"  # by an agent, since a moment ago
_BROUGHT_BACK = "brought back"
_RUNS_ON = ("running", "unknown", _BRINGS_BACK)
# Nothing else becomes of this start of the job.
_OVER = ("ended", "cancelled", "time_limit", "requeued")


class _AllocationFate(NamedTuple):
    """What an agent was told of the allocation; `host_lost` is None where it did not ask for the batch script's node."""

    fate: str
    host_lost: Optional[bool]
    by: str


def claim(folder: RunFolder, plan: RunPlan, replaces: int) -> Optional[RescueClaim]:
    """Return this process's node and its rescue by the job that it runs in, None outside of any; see `Backend.claim`."""
    here = JobStart.here()
    return RescueClaim(here.node, claim_node(folder, here, replaces), SlurmRescue(folder, plan, here)) if here else None


def claim_node(folder: RunFolder, here: JobStart, replaces: int) -> Optional[int]:
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


class SlurmRescue:
    """Has the scheduler run a job again whose supervisor, or the node that it was on, is gone.

    Args:
        folder: the run's folder.
        plan: its plan.
        here: the allocation that this agent runs in.
    """

    def __init__(self, folder: RunFolder, plan: RunPlan, here: JobStart) -> None:
        self._folder, self._here = folder, here
        self._next = plan.step.segment.next

    async def terminated(self, led: Callable[[], bool]) -> None:
        """Slurm told this agent to end: when that is because the batch script was killed, the run must come back.

        Slurm may tell the agents before it knows of the script, and a busy controller answers late: it is asked for as long as
        this process lives. The first three nodes ask at once; the others, one after the other, if none of these has an answer.

        Args:
            led: whether a supervisor leads this agent, or has let it go. A job that runs on then does so without this agent.
        """
        loop = asyncio.get_running_loop()
        index = self._index()
        await asyncio.sleep(_turn_s(index))
        began, pause = loop.time(), _POLL_S if index < _ASKING_NODES else _AGAIN_S
        while True:
            fate = await loop.run_in_executor(None, self._fate, pause)
            if fate == "killed":
                if await loop.run_in_executor(None, self._bring_back, fate):
                    return
            elif fate not in _RUNS_ON or (led() and loop.time() - began > _FATE_S):
                return
            await asyncio.sleep(pause)
            pause = _next_pause_s(pause, fate, loop.time() - began)

    async def unheard(self, led: Callable[[], bool]) -> bool:
        """Return whether the job of an agent ends that has just begun: it may have been told so before it could hear it.

        An agent that finds its supervisor at once asks nobody, and only those of the first three nodes do.
        """
        loop = asyncio.get_running_loop()
        index, pause = self._index(), _UNHEARD_S
        if index >= _ASKING_NODES:
            return False
        await asyncio.sleep(_UNHEARD_S + _turn_s(index))
        while not led() and pause < _UNHEARD_MOST_S:
            fate = await loop.run_in_executor(None, self._fate, pause)
            if fate not in ("running", "unknown", "preempted"):
                return True
            await asyncio.sleep(pause)
            pause *= 2.0
        return False

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
            if fate in ("unknown", _BRINGS_BACK, _BROUGHT_BACK):
                over = waited > _ORPHAN_S
            else:
                over = fate not in ("running", "preempted") or host_lost or waited >= _NOTICE_S
            if over:
                say(f"cordee agent {self._here.node}: no supervisor is left in job {self._here.job}, which is {fate}")
                if fate not in ("running", "preempted", "killed", "node_lost"):
                    return
                if await loop.run_in_executor(None, self._bring_back) or waited > _ORPHAN_S:
                    return
            await asyncio.sleep(min(pause, _UNANSWERED_S) if fate == "unknown" and pause == _LOOK_S else pause)

    def _look(self) -> tuple[str, bool]:
        """Return what the controller says of the allocation, see `JobStart.look`; what another agent was told a moment ago
        is taken, and what this one is told is left for others.
        """
        told = self._told(0.9 * _LOOK_S, 0.9 * _UNANSWERED_S)
        if told is not None and told.host_lost is not None:
            return told.fate, told.host_lost
        now = time.time()
        fate, host_lost = self._here.look(self._script_node())
        self._tell(fate, host_lost, now)
        return fate, host_lost

    def _script_node(self) -> str:
        """Return the node of the newest supervisor of this allocation, which its batch script has started; empty: there was none."""
        claims = Ownership(self._folder.control / "epochs")
        newest = claims.newest()
        try:
            owner = (claims.owner(newest) if newest else None) or {}
        except OSError:
            return ""
        here = self._here.document()
        return str(owner.get("node", "")) if {key: owner.get(key) for key in here} == here else ""

    def _fate(self, fresh_s: float) -> str:
        """Return what the controller says of the allocation, see `JobStart.fate`; what another agent was told less than
        `fresh_s` ago is taken, unless that is for it to act on.
        """
        told = self._told(fresh_s, fresh_s)
        if told is not None and told.by != self._here.node and told.fate not in ("killed", "node_lost"):
            return told.fate
        now = time.time()
        fate = self._here.fate()
        if fate != "killed":
            self._tell(fate, None, now)
            return fate
        told = self._told(fresh_s, fresh_s)
        begun = told is not None and told.by != self._here.node and told.fate in (_BRINGS_BACK, _BROUGHT_BACK)
        return told.fate if told is not None and begun else fate

    def _told(self, fresh_s: float, unanswered_s: float) -> Optional[_AllocationFate]:
        """Return what an agent of this allocation was told, if that is fresh."""
        answer, here, now = read_record(self._folder.control / _ANSWER), self._here.document(), time.time()
        if {key: answer.get(key) for key in here} != here:
            return None
        fate = answer["fate"]
        lasts_s = {
            _BRINGS_BACK: max(2.0 * fresh_s, 2.0 * _AGAIN_S),
            _BROUGHT_BACK: _BRINGS_BACK_S,
            "unknown": unanswered_s,
            **dict.fromkeys(_OVER, _BRINGS_BACK_S),
        }
        if not 0.0 <= now - answer["at"] < lasts_s.get(fate, fresh_s):
            return None
        return _AllocationFate(fate, answer["host_lost"], answer["by"])

    def _tell(self, fate: str, host_lost: Optional[bool], at: float) -> None:
        document = {**self._here.document(), "at": at, "fate": fate, "host_lost": host_lost, "by": self._here.node}
        try:
            write_atomically(self._folder.control / _ANSWER, json.dumps(document))
        except CordeeError as error:
            say(f"cordee agent {self._here.node}: {error}")

    def _bring_back(self, fate: str = "unknown") -> bool:
        """Return whether that is done; another agent, or this one a while later, tries again where it is not."""
        try:
            self._tell(_BRINGS_BACK, False, time.time())
            if replay(read_journal(self._folder.journal), self._folder.id).ended:
                return True
            if self._next == "forbidden":
                self._here.cancel()
                return True
            going = self._here.go_on(self._folder, self._next, fate)
            say(f"cordee agent {self._here.node}: the supervisor is lost, job {going['job']}: {going['how']}")
            if going["how"] == "resubmit":
                self._here.cancel()
            self._tell(_BROUGHT_BACK, False, time.time())
            return True
        except Exception as error:  # whatever it is: nobody else may be left
            say(f"cordee agent {self._here.node}: cannot bring the run back: {error}")
            self._tell("unknown", False, time.time())
            return False

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
    """Return after how long the agent of the node at `index` looks first: the second node's, as the supervisor was on the first.

    The next two never look together with it: they find what it was told a while ago.
    """
    return (
        (_LOOK_S + _LOOK_APART_S) * max(0, index - 1) if index <= _ASKING_NODES else _NOTICE_S + index * _EACH_LATER_S
    )


def _pause_s(index: int, nodes: int) -> float:
    """Return the pause between looks: of those further down one that all of them together share."""
    return _LOOK_S if index <= _ASKING_NODES else max(_LATER_S, nodes * _EACH_LATER_S)


def _turn_s(index: int) -> float:
    """Return after how long the agent of the node at `index` asks what becomes of a job that is told to end."""
    return index * _POLL_S if index < _ASKING_NODES else _AGAIN_S + (index - _ASKING_NODES) * _EACH_LATER_S


def _next_pause_s(pause: float, fate: str, waited_s: float) -> float:
    """Return the pause before the next question about a job that is told to end: short while Slurm may kill the agent soon."""
    most_s = _LOOK_S if fate == "running" or waited_s > _KILLED_S else _AGAIN_S
    return min(2.0 * pause, most_s)
