"""Setting nodes up and vetting them, each alone as it comes and then all together: a node that does not answer is unknown."""

from __future__ import annotations

import asyncio
import getpass
import os
from functools import partial
from typing import Any, Callable, Optional, Union

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.vocabulary import NodeJudged, NodePrepared
from cordee.control.supervisor.preparer import NodePreparer, PreparedAllocation
from cordee.core.clock import monotonic
from cordee.runs.plan import STEP_ENGINE, RunPlan, RunStep, RunVet
from cordee.systems.vetting.node.checks import unknown_result
from cordee.systems.vetting.node.judge.conduct import Conductor, plain_protocol
from cordee.systems.vetting.node.judge.node_link import Lost, VettedNode, within
from cordee.systems.vetting.node.judge.verdict import verdict
from cordee.wire import messages
from cordee.wire.messages import FromAgent

_SETUP_DEADLINE_S = 600.0
_CONTAINER_DEADLINE_S = 300.0
_SLACK_S = 5.0
_SETUP = {"check": "setup"}
_CONTAINER = {"check": "environment"}
_PAIRS = "pair.bandwidth"
_AT_ONCE = 100

SendTo = Callable[..., bool]
_Done = Union[messages.ContainerDone, messages.SetupDone, Lost]
_ANSWERS = (messages.ChecksOutput, messages.ChecksDone, messages.FreePorts, messages.Time)


class NodePreparation:
    """Prepares one node: its container, then set-up lines, since both may bring what the checks look for, then the checks.

    Args:
        kept: what is known of container and set-up lines, which are there already; None: they are made.

    Attributes:
        superseded: the agent is gone, or another preparation took its place: what it finds counts no more.
    """

    def __init__(
        self,
        node: Node,
        step: RunStep,
        folder: str,
        conductor: Conductor,
        order: SendTo,
        kept: Optional[list[dict[str, Any]]] = None,
    ) -> None:
        self.node = node
        self.incarnation = node.incarnation
        self._send = partial(order, node)
        self.member = VettedNode(node.name, self._send, node.address, self._away_s)
        self._step = step
        self._folder = folder
        self._conductor = conductor
        self._kept = kept
        self.superseded = False
        self._waiting: dict[str, asyncio.Future[_Done]] = {}

    def message(self, message: FromAgent, body: bytes) -> None:
        """Take what the agent says about its container, set-up and checks."""
        if isinstance(message, (messages.ContainerDone, messages.SetupDone)):
            done = self._waiting.get(message.id)
            if done is not None and not done.done():
                done.set_result(message)
        elif isinstance(message, _ANSWERS):
            self.member.message(message, body)

    def lost(self, reason: str) -> None:
        """The agent is gone: whatever is awaited will not come, and what was found counts no more."""
        self.superseded = True
        for done in self._waiting.values():
            if not done.done():
                done.set_result(Lost(reason))
        self.member.lost(reason)

    async def run(self) -> NodePrepared:
        """Set up and check; returns the results and what they say by themselves."""
        results = [] if self._kept is None else list(self._kept)
        environment = self._step.environment
        if environment is not None and environment.engine != STEP_ENGINE and self._kept is None:
            within_s = _CONTAINER_DEADLINE_S + environment.startup_s
            results += await self._ask(_CONTAINER, messages.Container, within_s, "the container was not up in time")
        if self._step.tasks.setup and self._kept is None and _all_pass(results):
            results += await self._ask(
                _SETUP, messages.Setup, _SETUP_DEADLINE_S, "the set-up lines did not end in time"
            )
        if _all_pass(results):
            wanted = checks_for(self._step.vet, self._folder, self._step.tasks.argv[0])
            results += await self._conductor.vet_node(self.member, first=wanted)
        return NodePrepared(self.node.name, self.incarnation, verdict(results), results)

    def _away_s(self) -> float:
        return self.node.away_s(monotonic())

    async def _ask(
        self,
        entry: dict[str, Any],
        what: Union[type[messages.Container], type[messages.Setup]],
        deadline_s: float,
        late: str,
    ) -> list[dict[str, Any]]:
        """Have the agent do something that ranks need, and return how that went as a check's result."""
        question = self.node.new_question()
        waiting = self._waiting[question] = asyncio.get_running_loop().create_future()
        if not self._send(what(question, deadline_s)):
            self.lost("its agent is gone")
        done = await within(waiting, deadline_s + _SLACK_S, self._away_s)
        del self._waiting[question]
        if done is None:
            return [unknown_result(entry, late, "timeout")]
        if isinstance(done, Lost):
            return [unknown_result(entry, done.text, "silent")]
        result = unknown_result(entry, done.text, "error")
        if done.status != "unknown":
            result.update(status=done.status, cause=None)
        return [{**result, "seconds": done.seconds}]


def _all_pass(results: list[dict[str, Any]]) -> bool:
    return all(result["status"] == "pass" for result in results)


class NodeVetting(NodePreparer):
    """The vetting of a run's nodes, from the first agent that connects to the last that is replaced.

    Args:
        allocation: what it has of its supervisor.
    """

    def __init__(self, allocation: PreparedAllocation) -> None:
        plan = allocation.plan
        self._step = plan.step
        self._folder, self._nodes, self._journal = allocation.folder, allocation.nodes, allocation.journal
        self._order, self._happened, self._ended = allocation.order, allocation.happened, allocation.ended
        vet = self._step.vet
        self._protocol = vet.protocol or plain_protocol(vet.deadline_s)
        self._identity = {"run": plan.run, "job": allocation.job, "cluster": _cluster(plan), "user": _user()}
        self._preparations: dict[str, NodePreparation] = {}
        self._tasks: set[asyncio.Task[NodePrepared]] = set()
        self._unjudged = False

    @property
    def busy(self) -> bool:
        """Whether a node is being prepared."""
        return bool(self._tasks)

    def begin(self, node: Node, reason: str = "its agent was replaced", again: bool = False) -> None:
        """Set up and check a node whose agent is new, or has lost what had been prepared; `again`: check it alone."""
        before = self._preparations.pop(node.name, None)
        if before is not None:
            before.lost(reason)
        if not self._preparations:
            self._journal.append("vetting_started", durable=False, nodes=list(self._nodes))
        self._unjudged = True
        known = (_CONTAINER["check"], _SETUP["check"])
        kept = [result for result in node.results if result["check"] in known] if again else None
        preparation = NodePreparation(node, self._step, self._folder, self._conductor(), self._order, kept)
        self._preparations[node.name] = preparation
        task = asyncio.ensure_future(preparation.run())
        self._tasks.add(task)

        def done(task: asyncio.Task[NodePrepared]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is None and not task.cancelled() and not preparation.superseded:
                self._happened(task.result())
            self._ended(error)

        task.add_done_callback(done)

    def message(self, node: Node, message: FromAgent, body: bytes) -> None:
        """Take what an agent says of its vetting."""
        if node.name in self._preparations:
            self._preparations[node.name].message(message, body)

    def lost(self, node: Node, reason: str) -> None:
        """A node's agent is gone."""
        preparation = self._preparations.pop(node.name, None)
        if preparation is not None:
            preparation.lost(reason)

    async def conclude(self) -> Optional[str]:
        """Judge the nodes against each other if there are new results, and tell the verdict on every node.

        Returns:
            Why no node may start, when the vetting aborts the run; else None.
        """
        if not self._unjudged:
            return None
        self._unjudged = False
        there = {name: node for name, node in self._nodes.items() if node.ready and node.session is not None}
        ready = {name: node for name, node in there.items() if name in self._preparations}
        members = {name: self._preparations[name].member for name in ready}
        own = {name: [result for result in node.results if result["check"] != _PAIRS] for name, node in ready.items()}
        serve_already = len(there) - len(ready)
        document = await self._conductor(serve_already).conclude(members, dict(own))
        for number, found in enumerate(document["nodes"], 1):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn
            self._happened(NodeJudged(found["node"], found["verdict"], found["results"]))
        brief = [{"node": found["node"], "verdict": found["verdict"]} for found in document["nodes"]]
        summary = {**document, "nodes": brief}
        self._journal.append("vetting_verdict", document=summary)
        return str(document["reason"]) if document["verdict"] == "abort" else None

    def _conductor(self, serve_already: int = 0) -> Conductor:
        return Conductor(self._protocol, self._identity, max(0, self._step.request.min_nodes - serve_already))


def checks_for(vet: RunVet, run_folder: str, python_argv0: str) -> list[dict[str, Any]]:
    """Return the checks that a plan asks for by itself.

    Args:
        vet: what it asks for.
        run_folder: the run's folder: the ranks must be able to write there.
        python_argv0: first word of the ranks' command; tells which Python must have the modules.
    """
    wanted: list[dict[str, Any]] = [
        {"check": "host.memory", "parameters": {"min_bytes": vet.min_memory_bytes}},
        {"check": "host.disk", "parameters": {"run_folder": run_folder, "min_bytes": vet.min_disk_bytes}},
        {"check": "host.load", "parameters": {"max_ratio": vet.max_load_ratio}},
    ]
    if vet.commands:
        wanted.append({"check": "host.commands", "parameters": {"commands": list(vet.commands)}})
    if vet.modules:
        modules = {"modules": list(vet.modules), "python": python_argv0}
        wanted.append({"check": "host.modules", "parameters": modules})
    return wanted


def _user() -> Optional[str]:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _cluster(plan: RunPlan) -> str:
    """Return Slurm's own name of the cluster, by which histories tell nodes of the same name apart; else the plan's."""
    return os.environ.get("SLURM_CLUSTER_NAME") or plan.cluster
