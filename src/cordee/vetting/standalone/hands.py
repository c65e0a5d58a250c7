"""What the first task of a node does when it is asked: runs checks in a child that can be killed, and finds ports."""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any, Callable, Optional

from cordee import wire
from cordee.errors import CordeeError
from cordee.node.tasks import STDERR, Task, TaskExit, TaskRunner
from cordee.node.watchers import Watched
from cordee.runs.folder import say
from cordee.starting import module_argv

Reply = Callable[[dict[str, Any], bytes], object]
_KILL_S = 2.0
_MOST_WORDS = 4000


class _Run:
    """One request of checks: what came so far, and who is told."""

    def __init__(self, identifier: str) -> None:
        self.identifier = identifier
        self.output = b""
        self.done: Optional[dict[str, Any]] = None
        self.words = b""


class Hands:
    """Answers `checks`, `port` and `clock` as a run's agent does; see `cordee.vetting.member.Member`.

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
        self._watched = Watched(lambda **told: TaskRunner(owner, kill_s=_KILL_S, **told))

    def answer_to(self, reply: Optional[Reply]) -> None:
        """Send answers to this conductor from now on; None drops them."""
        self._reply = reply
        self._earlier.update(self._runs)
        self._runs = {}

    def message(self, message: dict[str, Any]) -> None:
        """Do what is asked; other messages are left alone."""
        if message.get("t") == "checks":
            self._checks(message)
        elif message.get("t") == "port":
            self._port(message)
        elif message.get("t") == "clock":
            self._say({"t": "clock", "id": message["id"], "unix_s": time.time()})

    def end(self) -> None:
        """Kill whatever runs; what has ended has left nothing behind."""
        if self._watched.tasks.running():
            self._watched.tasks.kill_everything()

    def _say(self, message: dict[str, Any], body: bytes = b"") -> None:
        if self._reply is not None:
            self._reply(message, body)

    def _checks(self, message: dict[str, Any]) -> None:
        request = message["request"]
        same = {key: value for key, value in request.items() if key != "deadline_s"}
        key = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
        known = self._earlier.pop(key, None)
        if known is not None:
            self._runs[key] = known
            known.identifier = message["id"]
            if known.output:
                self._say({"t": "checks_output", "id": known.identifier}, known.output)
            if known.done is not None:
                self._say({**known.done, "id": known.identifier})
            return
        run = self._runs[key] = _Run(message["id"])
        self._count += 1
        here = {"env": dict(os.environ), "workdir": os.getcwd(), "asked_at": time.monotonic()}
        task = Task(
            f"checks-{self._count}",
            tuple(module_argv("cordee.checks", user_site=True)),
            _environment(),
            "/",
            deadline_s=message["deadline_s"],
            group="checks",
            stdin=json.dumps({**here, **request}).encode(),
        )

        def printed(stream: int, data: bytes) -> None:
            if stream == STDERR:
                run.words = (run.words + data)[-_MOST_WORDS:]
            else:
                run.output += data
                self._say({"t": "checks_output", "id": run.identifier}, data)

        def finished(ended: TaskExit) -> None:
            words = run.words.decode(errors="replace").strip()
            if words:
                say(f"cordee vet {self._node}: {words}")
            text = ended.text or (words.splitlines()[-1] if words and ended.code else "")
            run.done = {
                "t": "checks_done",
                "code": ended.code,
                "signal": ended.signal,
                "reason": ended.reason,
                "text": text,
            }
            self._say({**run.done, "id": run.identifier})

        self._watched.run_task(task, finished, output=printed)

    def _port(self, message: dict[str, Any]) -> None:
        try:
            ports = list(wire.pick_ports(message["host"], message["count"]))
        except CordeeError as error:
            self._say({"t": "port", "id": message["id"], "ports": [], "text": str(error)})
            return
        self._say({"t": "port", "id": message["id"], "ports": ports, "text": ""})


def _environment() -> dict[str, str]:
    """Return the environment of a child that runs in `/`: what it imports is found where this process found it."""
    env = dict(os.environ)
    paths = [os.path.abspath(path) for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if paths:
        env["PYTHONPATH"] = os.pathsep.join(paths)
    return env
