"""What the plugin runs once for a step on a node, as the user: it keeps the container open until the step is over.

The plugin and this process talk over one socket, which is standard input, in records that end with a NUL byte.

It is asked by `document=WORD` (see `carried`), `engine=NAME`, for a batch script `script=PATH`, and `go=`. It answers with
`error=TEXT`, or with all that a task needs to enter:

    mount=/proc/PID/ns/mnt, user=/proc/PID/ns/user (only where there is a namespace of users of its own)
    workdir=PATH (only where the environment or its image names one)
    set=NAME=VALUE, unset=NAME, image=NAME=VALUE (as `set`, unless the variable is one of Slurm's own)
    entrypoint=WORD, one for each word
    ready=

The end of the socket, which is also what a killed slurmstepd leaves, ends the container with everything in it. When the
container ends first, what is left in it is killed, so that no step runs on without its file systems.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Iterable, Iterator, Optional

from cordee.environment.document import Environment, Mount
from cordee.environment.engines import find_engine
from cordee.environment.spank.carried import carried

SOCKET = 0
_READ_BYTES = 65536
# How long what was killed may take to go; something stuck in the kernel is left to Slurm, which drains the node for it.
_END_S = 10.0


class Failed(Exception):
    """The container cannot be had; the text says why."""


class Container:
    """A container that is held, with the processes in it."""

    def __init__(self, holder: subprocess.Popen[bytes], pid: int, user: bool) -> None:
        self.holder = holder
        self.pid = pid
        self.user = user
        self._namespace = os.readlink(f"/proc/{pid}/ns/mnt")
        if self._namespace == os.readlink("/proc/self/ns/mnt"):
            raise Failed("the engine holds no container of its own")

    def end(self) -> None:
        """Kill what runs in it, then let it go."""
        self.kill_inside()
        assert self.holder.stdin is not None
        self.holder.stdin.close()
        try:
            self.holder.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.holder.kill()

    def kill_inside(self) -> None:
        """Kill every process in its mount namespace but those that hold it, also such as are started meanwhile."""
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            inside = [pid for pid in self._inside() if pid not in (self.pid, self.holder.pid)]
            if not inside:
                return
            for pid in inside:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass  # it is gone
            time.sleep(0.005)

    def _inside(self) -> Iterator[int]:
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    if os.readlink(f"/proc/{name}/ns/mnt") == self._namespace:
                        yield int(name)
                except OSError:
                    pass  # it is gone, or somebody else's


def read_request() -> dict[str, str]:
    """Return what the plugin asks for.

    Raises:
        Failed: the plugin is gone.
    """
    data = b""
    while not data.endswith(b"\0go=\0"):
        more = os.read(SOCKET, _READ_BYTES)
        if not more:
            raise Failed("the plugin is gone")
        data += more
    records = (record.partition("=") for record in os.fsdecode(data).split("\0") if record)
    return {key: value for key, _, value in records}


def environment_of(request: dict[str, str]) -> Environment:
    """Return the environment that a step asks for; a batch script's own folder is seen inside."""
    environment = carried(request["document"])
    script = request.get("script")
    if not script or (environment.root is not None and environment.root.kind == "host"):
        return environment
    folder = os.path.dirname(script)
    return replace(environment, mounts=(*environment.mounts, Mount(folder, folder, ("ro",))))


def start(environment: Environment, engine_name: str) -> Container:
    """Return the container of an environment, held by a child.

    Raises:
        Failed: this machine cannot run it, or the engine failed.
    """
    engine = find_engine(engine_name)
    missing = engine.missing(environment)
    if missing:
        raise Failed("; ".join(f"{each.text} ({each.next})" for each in missing))
    said = os.memfd_create("said")
    holder = subprocess.Popen(
        engine.hold(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True
    )
    assert holder.stdout is not None
    line = holder.stdout.readline()
    try:
        answer = json.loads(line)
    except ValueError:
        holder.kill()
        holder.wait()
        words = os.pread(said, _READ_BYTES, 0).decode(errors="replace").strip()
        raise Failed(words or f"the engine {engine_name} ended without a word, {_ending(holder.returncode)}") from None
    if "error" in answer:
        holder.wait()
        raise Failed(_words(answer["error"]))
    os.close(said)
    return Container(holder, answer["pid"], answer["user"])


def records(environment: Environment, container: Container) -> Iterator[str]:
    """Yield what a task needs to enter."""
    yield f"mount=/proc/{container.pid}/ns/mnt"
    if container.user:
        yield f"user=/proc/{container.pid}/ns/user"
    workdir = environment.workdir or environment.config.workdir
    if workdir:
        yield f"workdir={workdir}"
    for name, value in environment.config.env.items():
        if name not in environment.env:
            yield f"image={name}={value}"
    for name, value in environment.env.items():
        yield f"set={name}={value}" if value else f"unset={name}"
    if environment.entrypoint:
        for word in environment.config.entrypoint:
            yield f"entrypoint={word}"
    yield "ready="


def send(lines: Iterable[str]) -> None:
    """Write records to the plugin."""
    data = b"".join(os.fsencode(line) + b"\0" for line in lines)
    while data:
        data = data[os.write(SOCKET, data) :]


def watch(container: Container) -> None:
    """Return when the step is over or the container has ended."""
    assert container.holder.stdout is not None
    poll = select.poll()
    poll.register(SOCKET, select.POLLIN)
    poll.register(container.holder.stdout, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if SOCKET in ready and not os.read(SOCKET, _READ_BYTES):
            return
        if container.holder.stdout.fileno() in ready and not os.read(container.holder.stdout.fileno(), _READ_BYTES):
            send(["lost="])
            return


def _ending(code: Optional[int]) -> str:
    return f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"


def _words(error: dict[str, Optional[str]]) -> str:
    text = error.get("text") or "it cannot be had"
    given, advice = error.get("given"), error.get("next")
    return text + (f": {given}" if given else "") + (f" ({advice})" if advice else "")


def main() -> int:
    """Hold one container until standard input ends."""
    try:
        request = read_request()
        environment = environment_of(request)
        container = start(environment, request["engine"])
    except Exception as error:  # whatever it is, the plugin says it on the job's standard error
        send([f"error={error if isinstance(error, Failed) else f'{type(error).__name__}: {error}'}"])
        return 1
    try:
        send(records(environment, container))
        watch(container)
    except OSError:
        pass  # the plugin is gone
    finally:
        container.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
