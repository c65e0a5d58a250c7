"""`python -m cordee.systems.services.node.host SPEC`: one service on one node, as the rank of a run or beside the ranks of a job.

With `-` in place of SPEC, its document is the first line of standard input, whose end ends the service; what it learns is told on
standard output as JSON lines, too.

It starts the program, asks it whether it is ready and closed to strangers, writes what it
learns into the run's folder, ends the program when it is told to, and ends with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Optional

from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import CordeeError
from cordee.machine.tcp_sockets import connected_to
from cordee.runs.folder import say, write_atomically
from cordee.systems.services.node.container import command_beside
from cordee.systems.services.node.location import ServiceFailed, ServiceLocation
from cordee.systems.services.node.probe import ServiceAnswer, ask, ask_closed
from cordee.systems.services.node.program import (
    HostedProgram,
    ServiceHopeless,
    pause_after,
)
from cordee.systems.services.node.texts import (
    PULLING,
    STATE_SCHEMA,
    client_path,
    drain_path,
    filled,
    log_path,
    read_state,
    remove_temp,
    shell_lines,
    state_path,
)
from cordee.systems.services.node.visitors import Visitors

_TELL_EVERY_S = 10.0
_TICK_S = 0.1
_DRAIN_LOOK_S = 0.5
_LOCK_WAIT_S = 20.0
# A program that answered for so long is well: the next pause is the first again.
_WELL_S = 60.0
# Exit codes of podman: there is no such program in the image; it was killed.
_NOT_FOUND, _KILLED = 127, 137


class ServiceHost:
    """One service; `run` starts it and returns the exit code when it has ended.

    Args:
        spec: as `cordee.systems.services.start.host_document` writes it; it holds no value of a secret.
        run: the run's folder.
    """

    def __init__(self, spec: dict[str, Any], run: Path) -> None:
        self._spec, self._run = spec, run
        self._name: str = spec["service"]
        self._state_file = state_path(run, self._name)
        self._program: Optional[HostedProgram] = None
        self._stopping = False
        self._began = self._looked = monotonic()
        self._last: Optional[ServiceAnswer] = None
        self._ready_at: Optional[float] = None
        self._told = (0.0, "")
        self._place = ServiceLocation(spec, self._state_file.parent / f"{self._name}.files")
        self._log: Any = None
        self._hopeless = False
        before = read_state(self._state_file)  # of another host of this run
        self._proven = bool(before.get("proven"))  # was it ever ready, in this run?
        self._place.ports.update((one["name"], one["port"]) for one in before.get("endpoints", ()))
        remove_temp(before)
        self._marks: dict[str, bool] = {}
        self._drain_by: Optional[float] = None
        self._visitors = Visitors()
        self._tells = bool(spec.get("tells"))

    def run(self) -> int:
        """Run the service until it ends, or is told to.

        Returns:
            0: it was told to end, or nobody used it for as long as it says; else not 0.
        """
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(name, lambda *_: setattr(self, "_stopping", True))
        try:
            os.makedirs(self._state_file.parent, 0o700, exist_ok=True)
            if self._tells:
                threading.Thread(target=self._until_hung_up, daemon=True).start()
                self._log = log_path(self._run, self._name).open("ab")
            with self._only_writer() if self._spec["lock"] else contextlib.nullcontext():
                return self._serve_on()
        except ServiceFailed as error:
            self._hopeless = isinstance(error, ServiceHopeless)
            self._tell("failed", error.text)
            say(f"cordee service {self._name}: {error}")
            return 1
        finally:
            if self._program is not None:
                self._program.end()

    def _serve_on(self) -> int:
        """Serve until the end; a program that was ready once is started again however often it ends, after pauses that grow.

        Raises:
            ServiceFailed: it was never ready, lets strangers in, or is started again by whoever started this.
        """
        times = 0
        while True:
            try:
                self._place.choose_ports()
                self._place.fill()
                return self._serve()
            except ServiceFailed as error:
                if self._tells or not self._proven or isinstance(error, ServiceHopeless):
                    raise
                lasted_s = monotonic() - self._ready_at if self._ready_at is not None else 0.0
                times = 1 if lasted_s > _WELL_S else times + 1
                self._ready_at, pause_s = None, pause_after(times)
                if self._program is not None:
                    self._program.end()
                why = f"{error.text}; it is started again in {pause_s:.0f} s"
                say(f"cordee service {self._name}: {why}")
                until = monotonic() + pause_s
                while (now := monotonic()) < until:
                    if self._is_over(now):
                        return 0
                    self._tell("starting", why)
                    time.sleep(_TICK_S)

    def _until_hung_up(self) -> None:
        """End when whoever started this is gone, or wants its end."""
        while sys.stdin.readline():
            pass
        self._stopping = True

    def beside(self, told: dict[str, Any], argv: list[str]) -> int:
        """Run a command beside the service that runs, as `told` says, on this machine; return its exit code."""
        place = self._place
        place.address = told["address"]
        place.ports = {one["name"]: one["port"] for one in told["endpoints"]}
        place.fill(write=False)
        words, env = command_beside(self._spec, place, argv)
        return subprocess.run(words, env=env, stdin=subprocess.DEVNULL).returncode

    def _only_writer(self) -> Any:
        """Return the open lock of the volumes: one program at a time writes them."""
        path = Path(self._spec["lock"])
        lock = path.open("a+")
        until = monotonic() + self._spec.get("lock_wait_s", _LOCK_WAIT_S)
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except OSError:
                if monotonic() > until or self._stopping:
                    lock.close()
                    text = f"another program of {self._name} has its data open"
                    raise ServiceFailed(
                        text, given=str(path), next="stop that one first, or wait for its end"
                    ) from None
            self._marks["waits"] = True
            self._tell("starting", "another program of this service still has its data open")
            time.sleep(_TICK_S)

    def _serve(self) -> int:
        self._marks = {}
        self._began = monotonic()
        self._tell("starting", "its program is started")
        self._program = program = HostedProgram(self._spec, self._place, self._log)
        if program.pull() and not self._pulled(program):
            return 0
        program.set_up()
        program.start()
        return self._watch()

    def _pulled(self, program: HostedProgram) -> bool:
        """Wait for the image of its container; return whether it is there, and not to end.

        Raises:
            ServiceHopeless: it cannot be had.
        """
        image = self._spec["container"]["image"]
        while program.code is None:
            if self._is_over(monotonic()):
                return False
            self._tell("starting", f"{PULLING} {image}")
            time.sleep(_TICK_S)
        if program.code:
            what = (
                f"see why: `cordee service logs`, `podman pull {image}`; `podman login` where it asks for credentials"
            )
            raise ServiceHopeless(f"its image {image} cannot be pulled", next=what)
        self._began = monotonic()
        return True

    def _watch(self) -> int:
        """Ask until the program ends, or is to end."""
        spec, wrong_answers, due = self._spec, 0, 0.0
        visitors = self._visitors
        while True:
            assert self._program is not None
            code = self._program.code
            if code is not None:
                text = f"its program ended with {_exit_words(code)} after {monotonic() - self._began:.0f} s{self._place.full}"
                text += "" if self._proven else self._place.missing
                if "container" in spec:
                    text += _why_in_container(spec, code)
                raise ServiceFailed(text, next="see its output: `cordee service logs`")
            now = monotonic()
            if self._is_over(now):
                return 0
            if now >= due:
                probe = spec["ready"] if self._ready_at is None else spec["live"] or spec["ready"]
                due = now + (self._start_pause_s(now) if self._ready_at is None else max(probe["every_s"], 2.0))
                visitors.look(self._place.ports.values(), self._is_used)
                answer = self._ask(probe)
                if answer.right and self._ready_at is None:
                    answer = self._closed() or answer
                visitors.asked()
                self._last = answer
                wrong_answers = 0 if answer.right else wrong_answers + 1
                if answer.right and self._ready_at is None:
                    self._become_ready()
                elif self._ready_at is None and now - self._began > probe["within_s"]:
                    text = f"it was not ready within {probe['within_s']:.0f} s: {_said(answer)}{self._place.full}"
                    kind = ServiceFailed if self._proven else ServiceHopeless
                    raise kind(text, next="see its output: `cordee service logs`")
                elif self._ready_at is not None and spec["live"] and wrong_answers >= spec["live"]["failures"]:
                    raise ServiceFailed(
                        f"it gave {wrong_answers} wrong answers in a row: {_said(answer)}", next="it is started again"
                    )
                state = "unready" if wrong_answers else "ready"
                self._tell("starting" if self._ready_at is None else state, _said(answer))
            visitors.look(self._place.ports.values(), self._is_used)
            idle_s, since = spec["idle_s"], self._ready_at
            if idle_s and since is not None and now - max(visitors.last or 0.0, since) > idle_s:
                self._program.end()
                self._marks["idle"] = True
                self._tell("stopped", f"nobody was connected for {idle_s:.0f} s")
                return 0
            time.sleep(_TICK_S)

    def _start_pause_s(self, now: float) -> float:
        """Return after what time a program that starts is asked again: soon at first, so that it is known to be ready soon after it is."""
        return min(float(self._spec["ready"]["every_s"]), _TICK_S + (now - self._began) / 100)

    def _is_over(self, now: float) -> bool:
        """End the program where somebody has asked for that, and return whether it is so."""
        asked = self._stopping
        if not asked and not self._drained(now):
            return False
        if self._program is not None:
            self._program.end()
        self._tell("stopped", "it was asked to end" if asked else "another run of it has taken its place")
        return True

    def _drained(self, now: float) -> bool:
        """Return whether it was asked to end once nobody is connected, and nobody is, or for too long."""
        if self._drain_by is None:
            if now - self._looked < _DRAIN_LOOK_S:
                return False
            self._looked = now
            try:
                self._drain_by = now + float(drain_path(self._run, self._name).read_text())
            except (OSError, ValueError):
                return False
            self._tell("draining", "another run takes its place")
        return now > self._drain_by or not self._is_used()

    def _is_used(self) -> bool:
        """Return whether somebody is connected to it."""
        ports = self._place.ports
        if any(connected_to(set(ports.values())).values()):
            return True
        if "container" not in self._spec or self._program is None:
            return False
        # Connections to a container of root's are in its network alone; as long as that is not known, nobody knows.
        pid, inside = self._program.inside, {self._spec["ports"][name]["inside"] for name in ports}
        return pid is None or any(connected_to(inside, pid).values())

    def _become_ready(self) -> None:
        self._ready_at, self._proven = monotonic(), True
        known = {**self._place.outside, **self._place.values}
        known.update({f"url.{name}": url for name, url in self._spec.get("door", {}).items()})
        variables = {name: filled(text, known) for name, text in self._spec["client"].items()}
        write_atomically(client_path(self._run, self._name), shell_lines(variables), durable=False)

    def _ask(self, probe: dict[str, Any]) -> ServiceAnswer:
        place = self._place
        words, env = command_beside(self._spec, place, probe["command"]) if probe["command"] else ([], place.env)
        token = place.values["value.token"] if self._spec["guard"] == "token" else None
        port = place.ports.get(probe["port"])
        return ask({**probe, "command": words}, place.address, port, env, token)

    def _closed(self) -> Optional[ServiceAnswer]:
        """Return what is wrong where a stranger is let in; None where the service is closed, or nothing asks for that.

        Raises:
            ServiceFailed: a stranger is let in.
        """
        closed, place = self._spec["closed"], self._place
        if not closed:
            return None
        command, port = closed["command"], place.ports.get(closed["port"])
        words, env = command_beside(self._spec, place, command, True) if command else ([], place.stranger)
        answer = ask_closed({**closed, "command": words}, place.address, port, env)
        if answer.right:
            return None
        if answer.got[:1] == "2" or answer.got.startswith("exit code 0"):
            raise ServiceHopeless(
                f"it lets strangers in, so it was ended: {_said(answer)}", next="give it a password, or set guard"
            )
        return answer._replace(got=f"{answer.got}, where a refusal was wanted, such as 401 or 403,")

    def _tell(self, state: str, why: str) -> None:
        """Write what is known, when it has changed, and every ten seconds as a sign of life."""
        now = monotonic()
        if state == self._told[1] and now - self._told[0] < (_TELL_EVERY_S if state == "ready" else 1.0):
            return
        self._told = now, state
        spec = self._spec
        document = {
            "schema": STATE_SCHEMA,
            "service": self._name,
            "revision": spec["revision"],
            "state": state,
            "ready": state == "ready",
            "why": why,
            "hopeless": self._hopeless,
            "proven": self._proven,
            **self._marks,
            "asked": self._last.asked if self._last else None,
            "got": self._last.got if self._last else None,
            "endpoints": self._place.endpoints,
            "client_file": str(client_path(self._run, self._name)) if self._ready_at is not None else None,
            "node": os.environ.get("CORDEE_NODE") or os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "host": socket.gethostname(),
            "address": self._place.address,
            "pid": self._program.pid if self._program else None,
            "temp": self._program.scratch if self._program else None,
            "at": unix_s(),
            "ready_at": None if self._ready_at is None else round(unix_s() - (now - self._ready_at), 1),
            "used_at": self._visitors.last_unix_s,
            "ready_after_s": None if self._ready_at is None else round(self._ready_at - self._began, 3),
        }
        if self._tells:
            print(json.dumps(document), flush=True)
        try:
            write_atomically(self._state_file, json.dumps(document), durable=False)
        except CordeeError as error:  # the service goes on: what is not known here is asked of it again
            say(f"cordee service {self._name}: its state cannot be written: {error.text}")


def run_beside(spec: dict[str, Any], run: Path, told: dict[str, Any], argv: list[str]) -> int:
    """Run a command of a blueprint beside its service, which runs on this machine; return its exit code.

    Args:
        spec: what the service was started from.
        run: its run's folder.
        told: what its state's file says.

    Raises:
        ServiceFailed: it runs on another machine.
    """
    if told.get("host") != socket.gethostname():
        raise ServiceFailed(f"it runs on {told.get('host')}", next="run this there, or stop the service first")
    return ServiceHost(spec, run).beside(told, argv)


def _said(answer: ServiceAnswer) -> str:
    return f"asked {answer.asked}; got {answer.got} after {answer.seconds * 1000:.0f} ms"


def _exit_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _why_in_container(spec: dict[str, Any], code: int) -> str:
    """Return what an exit code says of a container, in words that follow it; empty: nothing."""
    if code == _NOT_FOUND and spec["container"]["guard"]:
        return f"; Cordée's guard runs in the image's own {spec['container']['entrypoint']}, and it has none that runs"
    if code == _KILLED:
        return "; it was killed, as is what takes more memory than its [need]"
    return ""


def main() -> int:
    """Run the service that the file in the arguments describes."""
    if sys.argv[1] == "-":
        return ServiceHost(json.loads(sys.stdin.readline()), Path(os.environ["CORDEE_RUN_DIR"])).run()
    path = Path(sys.argv[1])
    run = Path(os.environ.get("CORDEE_RUN_DIR") or path.parent)
    return ServiceHost(json.loads(path.read_text()), run).run()


if __name__ == "__main__":
    sys.exit(main())
