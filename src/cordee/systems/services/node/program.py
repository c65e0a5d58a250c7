"""The program of a service: set up, started, in a container where its target is podman, and ended with all that it has started."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

from cordee.core.clock import monotonic
from cordee.runs.folder import say, write_atomically
from cordee.systems.services.node.location import ServiceFailed, ServiceLocation
from cordee.systems.services.node.probe import words_of
from cordee.systems.services.node.texts import filled

# Of a container: it is killed after so long, before this process is.
_CONTAINER_STOP_S = 3.0
_MOST_FILES = 1 << 19
_MOST_PROCESSES = 1 << 15
_PAUSES_S = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)


class ServiceHopeless(ServiceFailed):
    """Another try would not help."""


def pause_after(times: int) -> float:
    """Return how long to wait before a program that has ended so often in a row is started again, seconds."""
    return _PAUSES_S[min(max(times, 1), len(_PAUSES_S)) - 1]


class HostedProgram:
    """One start of a service's program.

    Args:
        spec: what the service is started from.
        place: where it listens, and what its texts become.
        log: the file that it prints to; None: where its host prints.

    Raises:
        ServiceFailed: it cannot be set up or started.
    """

    def __init__(self, spec: dict[str, Any], place: ServiceLocation, log: Any) -> None:
        self._spec, self._place, self._log = spec, place, log
        self._name: str = spec["service"]
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._scratch = ""

    def set_up(self) -> None:
        """Run the commands that come before the program, and after a restore what makes its data whole."""
        after = self._spec.get("restored")
        restored = after is not None and os.path.exists(after["marker"])
        for argv in [*self._spec["setup"], *([after["argv"]] if after is not None and restored else [])]:
            words = [filled(word, self._place.known) for word in argv]
            try:
                code = subprocess.run(
                    words, env=self._place.env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
                ).returncode
            except OSError as error:
                raise self._not_there(words[0], error) from None
            if code:
                raise ServiceFailed(
                    f"the set-up command {words[0]} ended with exit code {code}{self._place.missing}",
                    next="see its output: `cordee service logs`",
                )
        if after is not None and restored:
            os.unlink(after["marker"])

    def start(self) -> None:
        """Start it."""
        place = self._place
        try:
            # Sockets below it need a short path, which TMPDIR may not be.
            self._scratch = tempfile.mkdtemp(prefix="cordee-", dir="/tmp")
        except OSError as error:
            raise ServiceFailed(f"no folder can be made in /tmp: {words_of(error)}", next="make room there") from None
        known, env = {**place.known, "temp": self._scratch}, place.env
        argv = [filled(word, known) for word in self._spec["argv"]]
        if self._spec.get("container"):
            variables = place.folder / ".env"
            lines = "".join(f"{name}={value}\n" for name, value in place.own.items())
            write_atomically(variables, lines, durable=False)
            argv = [*_container_words(self._spec, place, variables), *argv]
            env = dict(os.environ)
        try:
            self._child = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True
            )
        except OSError as error:
            raise self._not_there(argv[0], error) from None

    def _not_there(self, program: str, error: OSError) -> ServiceFailed:
        text = f"the program {program} cannot be started: {words_of(error)}{self._place.missing}"
        what = "install it, or choose another target"
        return ServiceFailed(text, given=program, allowed="a program of this machine", next=what)

    @property
    def code(self) -> Optional[int]:
        """Its exit code, None while it runs."""
        return self._child.poll() if self._child is not None else None

    @property
    def pid(self) -> Optional[int]:
        """Its pid, None before it was started."""
        return self._child.pid if self._child is not None else None

    def end(self) -> None:
        """End the program and all that it has started in its session, and remove its temporary folder."""
        if self._child is not None:
            self._end_child(self._child)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _end_child(self, child: subprocess.Popen[bytes]) -> None:
        if "container" in self._spec:
            self._end_container()
        asked = signal.Signals[self._spec.get("stop_signal", "SIGTERM")]
        for number, wait_s in ((asked, self._spec["stop_s"]), (signal.SIGKILL, 5.0)):
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

    def _end_container(self) -> None:
        """End the container: it outlives the command that started it when that is killed."""
        name, stop_s = container_name(self._spec, self._place.folder), min(self._spec["stop_s"], _CONTAINER_STOP_S)
        words = ["podman", "rm", "--force", "--ignore", f"--time={stop_s:.0f}", name]
        try:
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=stop_s + 10.0)
        except (OSError, subprocess.TimeoutExpired) as error:
            say(f"cordee service {self._name}: its container {name} could not be ended: {error}")


def container_name(spec: dict[str, Any], folder: Path) -> str:
    """Return the name of a service's container."""
    name: str = spec["container"]["name"]
    return name.replace("{run}", folder.parent.parent.name)


def _container_words(spec: dict[str, Any], place: ServiceLocation, variables: Path) -> list[str]:
    """Return the words before the program's own, which run it in its container."""
    inside = spec["container"]
    name = container_name(spec, place.folder)
    words = ["podman", "run", "--rm", "--replace", "--name", name, "--env-file", str(variables)]
    words += ["--security-opt", "no-new-privileges", "--cap-drop", "all", *_own_limits()]
    words += ["--read-only", "--user", str(inside["user"])]
    # Without rights, the user in the container is who runs it; root gives what is mounted to that user.
    own = ",U" if os.getuid() == 0 else ""
    if not own:
        words += ["--userns", inside["userns"]]
    for name, number in place.ports.items():
        words += ["--publish", f"{place.address}:{number}:{spec['ports'][name]['inside']}"]
    for about in spec["volumes"].values():
        words += ["--volume", f"{about['path']}:{about['inside']}:rw{own}"]
    for name, about in spec["secrets"].items():
        words += ["--volume", f"{about['path']}:/run/cordee/secrets/{name}:ro{own}"]
    if spec["files"]:
        words += ["--volume", f"{place.folder}:/run/cordee/files:ro{own}"]
    for path in ("/tmp", *inside["writable"]):
        words += ["--tmpfs", path]
    if inside["gpus"]:
        words += ["--device", "nvidia.com/gpu=all"]
    return [*words, inside["image"]]


def _own_limits() -> list[str]:
    """Return options that keep a container within what this process may give: podman's own limits may be above it."""
    found = []
    for name, number, most in (
        ("nofile", resource.RLIMIT_NOFILE, _MOST_FILES),
        ("nproc", resource.RLIMIT_NPROC, _MOST_PROCESSES),
    ):
        hard = resource.getrlimit(number)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(hard, most)
        found.append(f"--ulimit={name}={limit}:{limit}")
    return found


def _group_lives(child: subprocess.Popen[bytes]) -> bool:
    child.poll()
    try:
        os.killpg(child.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
