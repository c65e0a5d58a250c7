"""What the first task of a node does when it is asked: runs checks in a child that can be killed, and finds ports."""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Callable, Optional

from cordee import wire
from cordee.core.errors import CordeeError
from cordee.machine.processes.module_command import module_argv
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import STDERR, Task, TaskExit, TaskRunner
from cordee.runs.folder import say
from cordee.systems.vetting.node.judge.node_link import Answer, Question
from cordee.wire.messages import Checks, ChecksDone, ChecksOutput, Clock, FreePorts, Port, Time

Reply = Callable[[Answer, bytes], object]
_KILL_S = 2.0
_MOST_WORDS = 4000


class _Run:
    """One request of checks: what came so far, and who is told."""

    def __init__(self, identifier: str) -> None:
        self.identifier = identifier
        self.output = b""
        self.done: Optional[ChecksDone] = None
        self.words = b""


class CheckRunner:
    """Answers the questions of a vetting as a run's agent does; see `cordee.systems.vetting.node.judge.node_link.VettedNode`.

    What ran for one conductor need not run again for the next: the same request is answered with what is there.

    Args:
        owner: ties what is started here to this process.
        node: this node's name.
    """

    def __init__(self, owner: str, node: str) -> None:
        self._node = node
        self._reply: Optional[Reply] = None
        self._count = 0
        self._runs: dict[str, _Run] = {}
        self._earlier: dict[str, _Run] = {}
        self._watched = WatchedTasks(lambda **told: TaskRunner(owner, kill_s=_KILL_S, **told))

    def answer_to(self, reply: Optional[Reply]) -> None:
        """Send answers to this conductor from now on; None drops them."""
        self._reply = reply
        self._earlier.update(self._runs)
        self._runs = {}

    def message(self, question: Question) -> None:
        """Do what is asked."""
        if isinstance(question, Checks):
            self._checks(question)
        elif isinstance(question, Port):
            self._port(question)
        elif isinstance(question, Clock):
            self._say(Time(question.id, time.time()))

    def end(self) -> None:
        """Kill whatever runs; what has ended has left nothing behind."""
        if self._watched.tasks.running():
            self._watched.tasks.kill_everything()

    def _say(self, answer: Answer, body: bytes = b"") -> None:
        if self._reply is not None:
            self._reply(answer, body)

    def _checks(self, asked: Checks) -> None:
        request = asked.request
        same = {key: value for key, value in request.items() if key != "deadline_s"}
        key = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
        known = self._earlier.pop(key, None)
        if known is not None:
            self._runs[key] = known
            known.identifier = asked.id
            if known.output:
                self._say(ChecksOutput(known.identifier), known.output)
            if known.done is not None:
                self._say(known.done._replace(id=known.identifier))
            return
        run = self._runs[key] = _Run(asked.id)
        self._count += 1
        here = {"env": dict(os.environ), "workdir": os.getcwd(), "asked_at": time.monotonic()}
        task = Task(
            f"checks-{self._count}",
            tuple(module_argv("cordee.systems.vetting.node.checks", user_site=True)),
            _environment(),
            "/",
            deadline_s=asked.deadline_s,
            group="checks",
            stdin=json.dumps({**here, **request}).encode(),
        )

        def printed(stream: int, data: bytes) -> None:
            if stream == STDERR:
                run.words = (run.words + data)[-_MOST_WORDS:]
            else:
                run.output += data
                self._say(ChecksOutput(run.identifier), data)

        def finished(ended: TaskExit) -> None:
            words = run.words.decode(errors="replace").strip()
            if words:
                say(f"cordee vet {self._node}: {words}")
            text = ended.text or (words.splitlines()[-1] if words and ended.code else "")
            run.done = ChecksDone(run.identifier, ended.code, ended.signal, ended.reason, text)
            self._say(run.done)

        self._watched.run_task(task, finished, output=printed)

    def _port(self, asked: Port) -> None:
        try:
            ports = tuple(wire.pick_ports(asked.host, asked.count))
        except CordeeError as error:
            self._say(FreePorts(asked.id, (), str(error)))
            return
        self._say(FreePorts(asked.id, ports, ""))


def _environment() -> dict[str, str]:
    """Return the environment of a child that runs in `/`: what it imports is found where this process found it."""
    env = dict(os.environ)
    paths = [os.path.abspath(path) for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if paths:
        env["PYTHONPATH"] = os.pathsep.join(paths)
    return env
