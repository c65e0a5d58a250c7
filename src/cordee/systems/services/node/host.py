"""`python -m cordee.systems.services.node.host SPEC`: one service on one node, as the rank of a run or beside the ranks of a job.

It picks ports, writes configuration files, starts the program, asks it whether it is ready and closed to strangers, writes what it
learns into the run's folder, ends the program when it is told to, and ends with it.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import CordeeError
from cordee.runs.folder import say, write_atomically
from cordee.systems.services.node.probe import ServiceAnswer, ask, ask_closed, words_of
from cordee.systems.services.node.texts import STATE_SCHEMA, client_path, filled, shell_lines, state_path
from cordee.wire.ports import pick_port

_TELL_EVERY_S = 10.0
_TICK_S = 0.1
_LOCK_WAIT_S = 20.0
_NOT_THEIRS = ("CORDEE_", "SLURM_", "PMI", "OMPI_")
_OF_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


class ServiceFailed(CordeeError):
    """The service cannot be started, or has ended."""

    kind = "service"


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
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._stopping = False
        self._began = monotonic()
        self._last: Optional[ServiceAnswer] = None
        self._ready_at: Optional[float] = None
        self._told = (0.0, "")
        self._address = "127.0.0.1" if spec["bind"] == "loopback" else _own_address()
        self._ports: dict[str, int] = {}
        self._env: dict[str, str] = {}

    def run(self) -> int:
        """Run the service until it ends, or is told to.

        Returns:
            0: it was told to end, or nobody used it for as long as it says; else not 0.
        """
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(name, lambda *_: setattr(self, "_stopping", True))
        try:
            os.makedirs(self._state_file.parent, 0o700, exist_ok=True)
            with self._only_writer():
                self._prepare()
                return self._serve()
        except ServiceFailed as error:
            self._tell("failed", error.text)
            say(f"cordee service {self._name}: {error}")
            return 1
        finally:
            self._end()

    def _only_writer(self) -> Any:
        """Return the open lock of the volumes: one program at a time writes them."""
        path = Path(self._spec["lock"])
        lock = path.open("a+")
        until = monotonic() + _LOCK_WAIT_S
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
            self._tell("starting", "another program of this service still has its data open")
            time.sleep(_TICK_S)

    def _prepare(self) -> None:
        spec = self._spec
        for name, about in spec["ports"].items():
            number = about["number"]
            if number is not None and not _free(self._address, number):
                raise ServiceFailed(
                    f"the port {number} is taken",
                    given=f"{self._address}:{number}",
                    allowed="a free port",
                    next="deploy without --port: a free one is found",
                )
            self._ports[name] = number or pick_port(self._address)
        inside = spec.get("container")
        folder = self._state_file.parent / f"{self._name}.files"
        known = {"host": "0.0.0.0" if inside else self._address, "name": self._name}
        self._values: dict[str, str] = {}
        for name, about in spec["secrets"].items():
            try:
                self._values[f"value.{name}"] = Path(about["path"]).read_text().rstrip("\n")
            except OSError as error:
                text = f"the secret {name} cannot be read: {words_of(error)}"
                raise ServiceFailed(text, given=about["path"], next="deploy the service again, or restore it") from None
            known[f"secret.{name}"] = f"/run/cordee/secrets/{name}" if inside else about["path"]
        for name, number in self._ports.items():
            protocol = spec["ports"][name]["protocol"]
            at = f"{self._address}:{number}"
            known[f"port.{name}"] = str(spec["ports"][name]["inside"] if inside else number)
            known[f"url.{name}"] = f"http://{at}" if protocol == "http" else at
        for name, about in spec["volumes"].items():
            os.makedirs(about["path"], 0o700, exist_ok=True)
            known[f"volume.{name}"] = about["inside"] if inside else about["path"]
        known.update({f"parameter.{name}": value for name, value in spec["parameters"].items()})
        os.makedirs(folder, 0o700, exist_ok=True)
        for name in spec["files"]:
            known[f"file.{name}"] = f"/run/cordee/files/{name}" if inside else str(folder / name)
        for name, text in spec["files"].items():
            write_atomically(folder / name, filled(text, {**known, **self._values}), durable=False)
        self._known, self._folder = known, folder
        base = {} if inside else _plain_environment(spec["path"])
        own = {name: filled(text, {**known, **self._values}) for name, text in spec["env"].items()}
        for name, about in spec["secrets"].items():
            if about["env"]:
                own[about["env"]] = self._values[f"value.{name}"]
            if about["env_file"]:
                own[about["env_file"]] = known[f"secret.{name}"]
        self._own = own
        self._env = {**base, **own}

    def _serve(self) -> int:
        spec = self._spec
        self._tell("starting", "its program is started")
        for argv in spec["setup"]:
            words = [filled(word, self._known) for word in argv]
            try:
                code = subprocess.run(words, env=self._env, stdin=subprocess.DEVNULL).returncode
            except OSError as error:
                raise self._not_there(words[0], error) from None
            if code:
                raise ServiceFailed(
                    f"the set-up command {words[0]} ended with exit code {code}",
                    next="see its output: `cordee service logs`",
                )
        argv = self._command()
        try:
            self._child = subprocess.Popen(
                argv, env=self._process_env(), stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise self._not_there(argv[0], error) from None
        return self._watch()

    def _not_there(self, program: str, error: OSError) -> ServiceFailed:
        what = self._spec["install"] or "install it, or choose another target"
        text = f"the program {program} cannot be started: {words_of(error)}"
        return ServiceFailed(text, given=program, allowed="a program of this machine", next=what)

    def _watch(self) -> int:
        """Ask until the program ends, or is to end."""
        spec, wrong_answers, due = self._spec, 0, 0.0
        used_at = monotonic()
        while True:
            assert self._child is not None
            code = self._child.poll()
            if code is not None:
                text = f"its program ended with {_exit_words(code)} after {monotonic() - self._began:.0f} s"
                raise ServiceFailed(text, next="see its output: `cordee service logs`")
            if self._stopping:
                self._end()
                self._tell("stopped", "it was asked to end")
                return 0
            now = monotonic()
            if now >= due:
                probe = spec["ready"] if self._ready_at is None else spec["live"] or spec["ready"]
                due = now + (probe["every_s"] if self._ready_at is None else max(probe["every_s"], 2.0))
                answer = self._ask(probe)
                if answer.right and self._ready_at is None:
                    answer = self._closed() or answer
                self._last = answer
                wrong_answers = 0 if answer.right else wrong_answers + 1
                if answer.right and self._ready_at is None:
                    self._become_ready()
                elif self._ready_at is None and now - self._began > probe["within_s"]:
                    raise ServiceFailed(
                        f"it was not ready within {probe['within_s']:.0f} s: {_said(answer)}",
                        next="see its output: `cordee service logs`",
                    )
                elif self._ready_at is not None and spec["live"] and wrong_answers >= spec["live"]["failures"]:
                    raise ServiceFailed(
                        f"it gave {wrong_answers} wrong answers in a row: {_said(answer)}", next="it is started again"
                    )
                state = (
                    "ready"
                    if self._ready_at is not None and wrong_answers == 0
                    else "starting"
                    if self._ready_at is None
                    else "unready"
                )
                self._tell(state, _said(answer))
            if spec["idle_s"] and self._ready_at is not None:
                if _connected(self._ports.values()):
                    used_at = now
                elif now - max(used_at, self._ready_at) > spec["idle_s"]:
                    self._end()
                    self._tell("stopped", f"nobody was connected for {spec['idle_s']:.0f} s")
                    return 0
            time.sleep(_TICK_S)

    def _become_ready(self) -> None:
        self._ready_at = monotonic()
        known = {**self._known, **self._values}
        variables = {name: filled(text, known) for name, text in self._spec["client"].items()}
        write_atomically(client_path(self._run, self._name), shell_lines(variables), durable=False)

    def _ask(self, probe: dict[str, Any]) -> ServiceAnswer:
        words = [filled(word, self._known) for word in probe["command"] or ()]
        token = self._values["value.token"] if self._spec["guard"] == "token" else None
        return ask({**probe, "command": words}, self._address, self._ports.get(probe["port"]), self._env, token)

    def _closed(self) -> Optional[ServiceAnswer]:
        """Return what is wrong where a stranger is let in; None where the service is closed, or nothing asks for that.

        Raises:
            ServiceFailed: a stranger is let in.
        """
        closed = self._spec["closed"]
        if not closed:
            return None
        words = [filled(word, self._known) for word in closed["command"] or ()]
        stranger = {name: value for name, value in self._env.items() if name not in self._own}
        answer = ask_closed({**closed, "command": words}, self._address, self._ports.get(closed["port"]), stranger)
        if answer.right:
            return None
        if answer.got[:1] == "2" or answer.got.startswith("exit code 0"):
            raise ServiceFailed(
                f"it lets strangers in, so it was ended: {_said(answer)}", next="give it a password, or set guard"
            )
        return answer

    def _command(self) -> list[str]:
        spec = self._spec
        argv = [filled(word, self._known) for word in spec["argv"]]
        inside = spec.get("container")
        if not inside:
            return argv
        variables = self._folder / ".env"
        write_atomically(variables, "".join(f"{name}={value}\n" for name, value in self._own.items()), durable=False)
        return [*_container_words(spec, self._address, self._ports, self._folder, variables), *argv]

    def _process_env(self) -> dict[str, str]:
        return dict(os.environ) if self._spec.get("container") else self._env

    def _tell(self, state: str, why: str) -> None:
        """Write what is known, when it has changed, and every ten seconds as a sign of life."""
        now = monotonic()
        if state == self._told[1] and now - self._told[0] < (_TELL_EVERY_S if state == "ready" else 1.0):
            return
        self._told = now, state
        spec = self._spec
        endpoints = [
            {
                "name": name,
                "url": self._known[f"url.{name}"],
                "port": number,
                "token_file": spec["token_file"],
            }
            for name, number in self._ports.items()
        ]
        document = {
            "schema": STATE_SCHEMA,
            "service": self._name,
            "revision": spec["revision"],
            "state": state,
            "ready": state == "ready",
            "why": why,
            "asked": self._last.asked if self._last else None,
            "got": self._last.got if self._last else None,
            "endpoints": endpoints,
            "client_file": str(client_path(self._run, self._name)) if self._ready_at is not None else None,
            "node": os.environ.get("CORDEE_NODE") or os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "host": socket.gethostname(),
            "address": self._address,
            "pid": self._child.pid if self._child else None,
            "at": unix_s(),
            "ready_after_s": None if self._ready_at is None else round(self._ready_at - self._began, 3),
        }
        try:
            write_atomically(self._state_file, json.dumps(document), durable=False)
        except CordeeError as error:  # the service goes on: what is not known here is asked of it again
            say(f"cordee service {self._name}: its state cannot be written: {error.text}")

    def _end(self) -> None:
        """End the program and all that it has started in its session."""
        child = self._child
        if child is None:
            return
        for number, wait_s in ((signal.SIGTERM, self._spec["stop_s"]), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(child.pid, number)
            except (ProcessLookupError, PermissionError):
                break
            until = monotonic() + wait_s
            while monotonic() < until and _group_lives(child):
                time.sleep(0.05)
            if not _group_lives(child):
                break
        child.wait()


def _container_words(
    spec: dict[str, Any], address: str, ports: dict[str, int], folder: Path, variables: Path
) -> list[str]:
    """Return the words before the program's own, which run it in its container."""
    inside = spec["container"]
    words = ["podman", "run", "--rm", "--replace", "--name", inside["name"], "--env-file", str(variables)]
    words += [
        "--security-opt",
        "no-new-privileges",
        "--cap-drop",
        "all",
        "--read-only",
        "--user",
        str(inside["user"]),
        "--userns",
        inside["userns"],
    ]
    for name, number in ports.items():
        words += ["--publish", f"{address}:{number}:{spec['ports'][name]['inside']}"]
    for about in spec["volumes"].values():
        words += ["--volume", f"{about['path']}:{about['inside']}"]
    for name, about in spec["secrets"].items():
        words += ["--volume", f"{about['path']}:/run/cordee/secrets/{name}:ro"]
    if spec["files"]:
        words += ["--volume", f"{folder}:/run/cordee/files:ro"]
    for place in ("/tmp", *inside["writable"]):
        words += ["--tmpfs", place]
    if inside["gpus"]:
        words += ["--device", "nvidia.com/gpu=all"]
    return [*words, inside["image"]]


def _group_lives(child: subprocess.Popen[bytes]) -> bool:
    child.poll()
    try:
        os.killpg(child.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _said(answer: ServiceAnswer) -> str:
    return f"asked {answer.asked}; got {answer.got} after {answer.seconds * 1000:.0f} ms"


def _exit_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _own_address() -> str:
    """Return this node's address in the network, by its name."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _plain_environment(first: list[str]) -> dict[str, str]:
    """Return this environment without what is meant for ranks: the service is no part of their world."""
    mine = [
        place
        for place in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if place and not place.endswith("node.zip")
    ]
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(_NOT_THEIRS) and name not in _OF_RANKS
    }
    env.pop("PYTHONPATH", None)
    if mine:
        env["PYTHONPATH"] = os.pathsep.join(mine)
    there = [place for pattern in first for place in sorted(glob.glob(pattern), reverse=True)]
    env["PATH"] = os.pathsep.join([*there, env.get("PATH", os.defpath)])
    return env


def _connected(ports: Any) -> bool:
    """Return whether somebody is connected to one of these ports of this machine."""
    wanted = {f"{port:04X}" for port in ports}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as lines:
                next(lines, None)
                for line in lines:
                    words = line.split()
                    if words[3] == "01" and words[1].rpartition(":")[2] in wanted:
                        return True
        except OSError:
            continue
    return False


def main() -> int:
    """Run the service that the file in the arguments describes."""
    path = Path(sys.argv[1])
    run = Path(os.environ.get("CORDEE_RUN_DIR") or path.parent)
    return ServiceHost(json.loads(path.read_text()), run).run()


if __name__ == "__main__":
    sys.exit(main())
