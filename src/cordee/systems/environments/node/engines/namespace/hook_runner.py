"""OCI hooks of a container (OCI runtime specification 1.0.2, hooks and state), and those of CDI files.

This engine is no OCI runtime: what such a one calls its own namespace is, up to `createContainer`, the mount namespace of the
container with the host's root still in sight, so that hooks find the container's root where `config.json` of the bundle says.
`poststart` and `poststop` are run on the host by a process that never left it.
"""

from __future__ import annotations

import json
import os
import time

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.execute import say
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OCI_VERSION = "1.0.2"
_AFTER = ("poststart", "poststop")
_STATUS = {"startContainer": "created", "poststart": "running", "poststop": "stopped"}
# For hooks that say none: one that hangs shall not hold a job for ever.
_TIMEOUT_S, _TICK_S = 120, 0.01


class HookRunner:
    """Runs the hooks of one container.

    Args:
        hooks: each with `stage`, `path`, `args`, `env`, `timeout`.
        annotations: of the environment.
        bundle: the folder in which `config.json` is, or will be.
    """

    def __init__(self, hooks: list[dict[str, Any]], annotations: dict[str, str], bundle: str = "") -> None:
        self._hooks, self._annotations, self.bundle = hooks, annotations, bundle
        self._id = f"cordee-{os.getpid()}"
        self._told = -1
        self._document: dict[str, Any] = {}

    def stand_by(self) -> None:
        """Start the process that runs `poststart` and `poststop`, while the host is in sight; it needs nobody to end well."""
        if not any(hook["stage"] in _AFTER for hook in self._hooks):
            return
        reading, self._told = os.pipe()
        heard, ready = os.pipe()
        if os.fork():
            os.close(reading)
            os.close(ready)
            os.read(heard, 1)
            os.close(heard)
            return
        try:
            os.close(self._told)
            os.close(heard)
            os.setsid()
            # What is mounted from here on is the container's.
            kernel.unshare(kernel.NEWNS)
            os.close(ready)
            os.chdir("/")
            silent = os.open("/dev/null", os.O_RDWR)
            for number in range(2):  # whoever reads the answer waits for its end
                os.dup2(silent, number)
            kernel.block_signals()
            with os.fdopen(reading, encoding="utf-8", errors="surrogateescape") as told:
                line = told.readline()
                if line:
                    self._on_host(json.loads(line), told)
        finally:
            os._exit(0)

    def _on_host(self, told: dict[str, Any], end: Any) -> None:
        """Run `poststart`, and `poststop` when the container is gone: nobody keeps the other end of the pipe."""
        import shutil
        import tempfile

        self.bundle = tempfile.mkdtemp(prefix="cordee-bundle-")
        try:
            self._write(told["document"])
            self._warn("poststart", told["pid"])
            end.read()
            self._warn("poststop", told["pid"])
        finally:
            shutil.rmtree(self.bundle, ignore_errors=True)

    def describe(self, root: str, args: list[str], cwd: str, mounts: list[tuple[str, str, tuple[str, ...]]]) -> None:
        """Write the bundle's `config.json`."""
        self._document = {
            "ociVersion": OCI_VERSION,
            "root": {"path": root},
            "process": {"args": args, "cwd": cwd, "env": [f"{name}={value}" for name, value in os.environ.items()]},
            "mounts": [
                {"source": source, "destination": target, "type": "bind", "options": list(flags)}
                for source, target, flags in mounts
            ],
            "annotations": self._annotations,
            "linux": {"namespaces": [{"type": "mount"}]},
        }
        self._write(self._document)

    def _write(self, document: dict[str, Any]) -> None:
        with open(f"{self.bundle}/config.json", "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(document, file)

    def run(self, stages: tuple[str, ...], pid: int, on_host: Any = str) -> None:
        """Run the hooks of some stages, in their order.

        Args:
            stages: those.
            pid: of the container's first process, as the host counts.
            on_host: returns where a path of the host is found now.

        Raises:
            EngineRefused: one failed or took too long; its words are on standard error.
        """
        for stage in stages:
            for hook in self._hooks:
                if hook["stage"] == stage:
                    self._run(stage, hook, pid, on_host(hook["path"]))

    def started(self, pid: int) -> None:
        """Say that the container is up: `poststart` is run, and `poststop` when nobody keeps this process' end of the pipe."""
        if self._told >= 0:
            data = json.dumps({"pid": pid, "document": self._document}).encode("utf-8", "surrogateescape") + b"\n"
            while data:
                data = data[os.write(self._told, data) :]

    def _warn(self, stage: str, pid: int) -> None:
        for hook in self._hooks:
            if hook["stage"] == stage:
                try:
                    self._run(stage, hook, pid, hook["path"])
                except EngineRefused as refused:
                    say(refused.words())

    def _run(self, stage: str, hook: dict[str, Any], pid: int, path: str) -> None:
        state: dict[str, Any] = {
            "ociVersion": OCI_VERSION,
            "id": self._id,
            "status": _STATUS.get(stage, "creating"),
            "bundle": self.bundle,
            "annotations": self._annotations,
        }
        if stage != "poststop":
            state["pid"] = pid
        given = os.memfd_create("state", 0)
        os.write(given, json.dumps(state).encode("utf-8", "surrogateescape"))
        os.lseek(given, 0, os.SEEK_SET)
        child = os.fork()
        if child == 0:
            _become(hook, path, given)
        os.close(given)
        status = _await(child, hook["timeout"] or _TIMEOUT_S)
        if status != 0:
            limit = hook["timeout"] or _TIMEOUT_S
            how = f"did not end within {limit} s" if status is None else f"ended with exit code {status}"
            raise EngineRefused(
                f"a hook of the stage {stage} {how}",
                given=" ".join([hook["path"], *hook["args"][1:]]),
                next="what it said stands above; it is the site's, or of a CDI file",
            )


def _become(hook: dict[str, Any], path: str, given: int) -> None:
    try:
        os.setsid()
        kernel.set_signals(set())
        kernel.restore_ignored()
        for number, source in ((0, given), (1, 2)):
            os.dup2(source, number, inheritable=True)
        if path.startswith("/proc/self/fd/"):
            os.set_inheritable(int(path.split("/")[4]), True)
        env = dict(each.partition("=")[::2] for each in hook["env"])
        os.execve(path, hook["args"], env)
    except OSError as error:
        say(f"a hook cannot be executed: {error.strerror}: {hook['path']}")
    finally:
        os._exit(127)


def _await(child: int, limit_s: float) -> int | None:
    """Return a hook's exit code; None: it was killed, with what shares its session, for taking too long."""
    until = time.monotonic() + limit_s
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return kernel.exit_code(status)
        if time.monotonic() > until:
            os.killpg(child, kernel.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(_TICK_S)
