"""The program of a service: set up, started, in a container where its target is podman, and ended with all that it has started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any, Optional

from cordee.core.clock import monotonic
from cordee.runs.folder import say
from cordee.systems.services.node.container import (
    PodmanMachine,
    container_name,
    container_words,
    has_image,
    remove_containers,
)
from cordee.systems.services.node.location import ServiceFailed, ServiceLocation
from cordee.systems.services.node.probe import words_of
from cordee.systems.services.node.texts import filled

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
        self.scratch = ""
        self._limits: list[str] = []

    def pull(self) -> bool:
        """Begin to pull the image of its container where that is not on this machine; return whether it is pulled.

        Raises:
            ServiceHopeless: podman cannot run it here.
        """
        inside = self._spec.get("container")
        if not inside:
            return False
        machine = PodmanMachine()
        lack = machine.lacks(inside)
        if lack is not None:
            raise ServiceHopeless(lack.text, next=lack.next)
        self._limits = machine.limits(inside)
        if has_image(inside["image"]):
            return False
        self._begin(["podman", "pull", inside["image"]], dict(os.environ))
        return True

    def set_up(self) -> None:
        """Run the commands that come before the program, and after a restore what makes its data whole."""
        after = self._spec.get("restored")
        restored = after is not None and os.path.exists(after["marker"])
        place, inside = self._place, "container" in self._spec
        for argv in [*self._spec["setup"], *([after["argv"]] if after is not None and restored else [])]:
            words = [filled(word, place.known) for word in argv]
            env = place.env
            if inside:
                words = container_words(self._spec, place, argv[1:], ["--entrypoint", words[0]], publish=False)
                env = dict(os.environ)
            try:
                code = subprocess.run(
                    words, env=env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
                ).returncode
            except OSError as error:
                raise self._not_there(words[0], error) from None
            if code:
                raise ServiceFailed(
                    f"the set-up command {argv[0]} ended with exit code {code}{self._place.missing}",
                    next="see its output: `cordee service logs`",
                )
        if after is not None and restored:
            os.unlink(after["marker"])

    def start(self) -> None:
        """Start it."""
        place = self._place
        try:
            # Sockets below it need a short path, which TMPDIR may not be.
            self.scratch = tempfile.mkdtemp(prefix="cordee-", dir="/tmp")
        except OSError as error:
            raise ServiceFailed(f"no folder can be made in /tmp: {words_of(error)}", next="make room there") from None
        argv, env = [filled(word, {**place.known, "temp": self.scratch}) for word in self._spec["argv"]], place.env
        inside = self._spec.get("container")
        if inside:
            options = [f"--pidfile={self._pid_file}", *self._limits]
            options += ["--entrypoint", inside["entrypoint"]] if inside["entrypoint"] else []
            argv, env = container_words(self._spec, place, self._spec["argv"], options), dict(os.environ)
        self._begin(argv, env)

    def _begin(self, argv: list[str], env: dict[str, str]) -> None:
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

    @property
    def _pid_file(self) -> str:
        return os.path.join(self.scratch, "container.pid")

    @property
    def inside(self) -> Optional[int]:
        """The pid of its container's first process; None: it has none yet."""
        try:
            with open(self._pid_file) as file:
                return int(file.read())
        except (OSError, ValueError):
            return None

    def end(self) -> None:
        """End the program and all that it has started in its session, and remove its temporary folder."""
        if self._child is not None:
            self._end_child(self._child)
        shutil.rmtree(self.scratch, ignore_errors=True)

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
        name = container_name(self._spec, self._place.folder)
        try:
            remove_containers(name, self._spec["stop_s"])
        except (OSError, subprocess.TimeoutExpired) as error:
            say(f"cordee service {self._name}: its container {name} could not be ended: {error}")


def _group_lives(child: subprocess.Popen[bytes]) -> bool:
    child.poll()
    try:
        os.killpg(child.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
