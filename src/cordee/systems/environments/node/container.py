"""The container of a node: one for all ranks, set-up lines, checks and shells, held open by a child of the agent.

What runs inside is a Task like any other, with the engine's words in front of its command; its pid is the host's. The
child that holds the container ends with its standard input, so that nothing outlives the agent.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from typing import Any, Callable, Mapping, Optional, Sequence

from cordee.control.agent.enclosure import AgentSurroundings, Enclosure, EnclosureDown
from cordee.control.agent.output import LastOutput
from cordee.core.backends import backend_on_node
from cordee.core.clock import monotonic
from cordee.core.errors import CordeeError
from cordee.machine.foreign_files import parse_json
from cordee.machine.processes import tree as processes
from cordee.machine.processes.module_command import module_argv
from cordee.machine.tasks.task import STDERR, STDOUT, Task, TaskExit
from cordee.systems.environments.node.document import Environment, environment_of
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import CONTAINER_SCHEMA, Engine, enter_argv
from cordee.systems.environments.node.hooks import is_on
from cordee.systems.environments.node.mounts import with_own_mounts
from cordee.systems.environments.node.ready import ready_here
from cordee.systems.environments.node.ssh_access import SERVER, package_folder, ssh_request
from cordee.systems.environments.node.startup import NodeStartup
from cordee.wire.messages import Container as OpenContainer
from cordee.wire.messages import ContainerDone, ContainerLost

_TASK, _SSH = "container", "ssh"
_CLOSE_S = 5.0
_POLL_S = 0.01
_MOST_ENDS = 3
# What a command that is there but cannot be executed, or is not there, ends with, as from a shell.
_NOT_EXECUTED, _ENGINE_SAYS = (126, 127), b"cordee: "
_FORGET_S = 3600.0
# What a rank's command `python` means where an image has only `python3`.
_HAS_PYTHON = "command -v python >/dev/null"


class NodeContainer(Enclosure):
    """The container of one node.

    Args:
        around: what it has of its agent.

    Attributes:
        lost: why the container that was open has ended by itself; empty when it has not, or another one was asked for.
    """

    encloses = True

    def __init__(self, around: AgentSurroundings) -> None:
        super().__init__(around)
        plan, watched = around.plan, around.watched
        planned, checkpoint = plan.step.environment, plan.step.checkpoint
        assert planned is not None
        self.engine_name = planned.engine
        self.environment = environment_of(planned.document)
        self._own, self._node = around.own, around.node
        self._wants_python = plan.step.tasks.argv[0] == "python"
        begin = checkpoint.begin.checkpoints if checkpoint.begin is not None else {}
        self._checkpoints = list(dict.fromkeys([checkpoint.path, *map(os.path.dirname, begin)]))
        self._tasks, self._run_task = watched.tasks, watched.run_task
        self._said, self._gone = around.said, around.gone
        self._enter: Optional[tuple[str, ...]] = None
        self._opening: Optional[asyncio.Task[None]] = None
        self._has_python = True
        self._ended: Optional[asyncio.Future[TaskExit]] = None
        self._ends: list[float] = []
        self._left: set[int] = set()
        self._asked_for = ""
        self._startup = NodeStartup(self.environment, self._own[min(1, len(self._own) - 1)])

    @property
    def workdir(self) -> str:
        """Where commands begin, as they see it."""
        return self.environment.workdir or self._plan.workdir

    @property
    def cwd(self) -> str:
        """Where their processes begin on the host."""
        return self._plan.folder

    def variables(self, host: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment of a command: what the EDF sets goes before the image, the image before the host."""
        return self.environment.variables(host, self._startup.left)

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command line that runs `argv` in the container.

        Raises:
            EnclosureDown: it is not open.
        """
        if self._enter is None:
            raise EnclosureDown(self.lost or "the container is not open")
        return tuple(enter_argv(self._enter, argv, self.workdir))

    def words(self) -> list[str]:
        """Return what stands before a command that is to run inside; nothing where there is no open container."""
        return list(self.wrap(())) if self._enter is not None else []

    def wrap_rank(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command line of a rank: through the image's entrypoint where the EDF asks for that.

        Raises:
            EnclosureDown: it is not open.
        """
        if argv[0] == "python" and not self._has_python:
            argv = ("python3", *argv[1:])
        return self.wrap(self.environment.command(tuple(argv)))

    def explain(self, ended: TaskExit, said: Optional[LastOutput]) -> TaskExit:
        """Return how a rank ended: one whose command the engine could not execute has not started, in the engine's words."""
        if ended.code not in _NOT_EXECUTED or said is None:
            return ended
        words = said.line(_ENGINE_SAYS)
        return replace(ended, reason="not_started", text=words) if words else ended

    async def close(self) -> None:
        """End the container in an orderly way; what does not end in time is left to the agent's last sweep."""
        if self._opening is not None:
            self._opening.cancel()
        self._tasks.stop(_SSH, _CLOSE_S)
        self._enter = None
        if self._ended is not None:
            self._tasks.close_stdin(_TASK)
            await asyncio.wait({self._ended}, timeout=_CLOSE_S)
        self._tasks.spared -= self._left

    # Opening

    def prepare(self, order: OpenContainer, body: bytes) -> None:
        """Open the container, and answer once it is open or cannot be had."""
        self._asked_for = order.id
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._answer(order.deadline_s))

    async def _answer(self, deadline_s: float) -> None:
        began = monotonic()
        status, text = "pass", ""
        if self._enter is None:
            try:
                await self._open(self.environment, deadline_s)
            except CordeeError as error:
                given = f": {error.given}" if error.given is not None else ""
                status, text = "fail", f"{error.text}{given}" + (f" ({error.next})" if error.next else "")
            except Exception as error:
                status, text = "unknown", f"{type(error).__name__}: {error}"
            if status != "pass":
                await self._drop()
            text = text or self._startup.told
        self.lost = ""
        self._send(ContainerDone(self._asked_for, status, text, round(monotonic() - began, 3)))

    async def _open(self, environment: Environment, deadline_s: float) -> None:
        self._ends = [moment for moment in self._ends if monotonic() - moment < _FORGET_S]
        if len(self._ends) >= _MOST_ENDS:
            raise CordeeError(f"the container ended by itself {len(self._ends)} times within an hour: {self.lost}")
        engine = find_engine(self.engine_name)
        self._startup.forget()
        here = ready_here(environment, {**os.environ, "CORDEE_NODE": self._node}, self._warn)
        complete = with_own_mounts(here, [*self._own, self._plan.job_folder, *self._checkpoints])
        argv = await asyncio.get_running_loop().run_in_executor(None, _prepared, engine, complete)
        self._enter = await self._hold(argv, deadline_s)
        strays = processes.strays(os.getpid(), f"{self._tasks.owner}/", processes.all_processes())
        self._left = strays - self._tasks.spared
        self._tasks.spared |= self._left
        if self._wants_python:
            self._has_python = await self._runs_well(("/bin/sh", "-c", _HAS_PYTHON))
        await self._startup.run(here, self._ran, self.wrap, self.cwd)
        self._open_ssh(here)

    async def _hold(self, argv: list[str], deadline_s: float) -> tuple[str, ...]:
        """Start what holds the container, and return the words that lead into it once it is up."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._ended = loop.create_future()
        printed = _Lines(answered, self._said)
        task = Task(_TASK, tuple(argv), dict(os.environ), self.cwd, group=_TASK, open_stdin=True, keeps_children=True)
        self._run_task(task, self._holder_ended, output=printed)
        either: set[asyncio.Future[Any]] = {answered, self._ended}
        await asyncio.wait(either, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            why = f"was not up within {deadline_s:g} s"
            if self._ended.done():
                why = f"did not come up: {_how(self._ended.result())}"
            raise CordeeError(f"the container {why}" + printed.last_words())
        answer = answered.result()
        if "enter" not in answer:
            raise _error_of(answer.get("error"))
        enter = [str(word) for word in answer["enter"]]
        enter[0] = shutil.which(enter[0]) or enter[0]
        return tuple(enter)

    async def _runs_well(self, argv: Sequence[str]) -> bool:
        env = self.environment.variables(os.environ)
        return (await self._ran(Task("look-for-python", self.wrap(argv), env, self.cwd))).code == 0

    def _open_ssh(self, here: Environment) -> None:
        """Let people in by ssh where the environment asks for that; that it fails ends no run."""
        if is_on(here.annotations, "ssh"):
            loopback = not backend_on_node(self._plan.backend, self._plan.backend_part).abilities.several_machines
            asked = ssh_request(
                here, self._enter or (), self.variables(os.environ), self.workdir, self._node, loopback, self._own[0]
            )
            argv, env = tuple(module_argv(SERVER)), dict(os.environ, PYTHONPATH=package_folder())
            task = Task(_SSH, argv, env, self.cwd, group=_SSH, stdin=asked)
            self._run_task(task, lambda ended: None, output=self._said)

    def _warn(self, text: str) -> None:
        self._said(STDERR, f"cordee: {text}\n".encode())

    async def _ran(self, task: Task) -> TaskExit:
        ended: asyncio.Future[TaskExit] = asyncio.get_running_loop().create_future()
        self._run_task(task, ended.set_result, output=self._said)
        return await ended

    async def _drop(self) -> None:
        self._enter = None
        self._tasks.stop(_SSH, _CLOSE_S)
        if self._ended is not None and not self._ended.done():
            self._tasks.stop(_TASK, _CLOSE_S)
            await self._ended

    def _holder_ended(self, ended: TaskExit) -> None:
        assert self._ended is not None
        if not self._ended.done():
            self._ended.set_result(ended)
        self._tasks.spared -= self._left
        self._left = set()
        if self._enter is None:
            return
        self._tasks.stop(_SSH, _CLOSE_S)
        self._enter = None
        self._ends.append(monotonic())
        self.lost = f"its container ended: {_how(ended)}"
        self._send(ContainerLost(self.lost))
        self._gone()


class _Lines:
    """Finds the holder's one JSON line in what it prints, and passes on everything else."""

    def __init__(self, answered: asyncio.Future[dict[str, Any]], said: Callable[[int, bytes], None]) -> None:
        self._answered, self._said = answered, said
        self._begun = b""
        self._last = b""

    def __call__(self, stream: int, data: bytes) -> None:
        if stream != STDOUT or self._answered.done():
            self._last = (self._last + data)[-2000:]
            self._said(stream, data)
            return
        self._begun += data
        while b"\n" in self._begun and not self._answered.done():
            line, _, self._begun = self._begun.partition(b"\n")
            answer = _answer_in(line)
            if answer is not None:
                self._answered.set_result(answer)
            else:
                self._said(stream, line + b"\n")

    def last_words(self) -> str:
        """Return the last line that was no answer, as the end of a sentence."""
        lines = [line.strip() for line in (self._last + self._begun).decode(errors="replace").splitlines()]
        words = [line for line in lines if line]
        return f": {words[-1][:400]}" if words else ""


def _prepared(engine: Engine, environment: Environment) -> list[str]:
    """Return the command line that holds the environment's container.

    Raises:
        CordeeError: this machine cannot have it; says what is missing.
    """
    missing = engine.missing(environment)
    if missing:
        what = "; ".join(f"{each.capability}: {each.text}" for each in missing)
        raise CordeeError(f"the engine {engine.name} cannot run here: {what}", next=missing[0].next)
    return engine.hold(environment)


def _answer_in(line: bytes) -> Optional[dict[str, Any]]:
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("schema") == CONTAINER_SCHEMA else None


def _error_of(said: Any) -> CordeeError:
    """Return an engine's error as one of ours, whichever of its parts it gives."""
    if not isinstance(said, dict):
        return CordeeError(str(said or "the engine gave no reason"))
    known = {key: said[key] for key in ("given", "allowed", "next") if said.get(key) is not None}
    return CordeeError(str(said.get("text") or said), **known)


def _how(ended: TaskExit) -> str:
    if ended.text:
        return ended.text
    return f"ended by {ended.signal}" if ended.signal else f"exit code {ended.code}"
