"""Several nodes on one machine that vet themselves together with `cordee vet`: real processes, each with a host of its own.

What a node's kernel and drivers would say comes from a fixture tree and from the fake NVML; all else is real. Faults are
injected into one node by its tree, its GPUs, its PATH, its environment, or a prefix that puts its processes into a world
of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cordee
from cordee.machine.processes.module_command import module_argv
from support.hosts.host_tree import HostTree
from support.nvml import FakeGpus

_SOURCE = str(Path(cordee.__file__).parents[1])
_PATIENCE_S = 60.0


@dataclass
class SimulatedNode:
    """One node: its host, its GPUs, and what its processes are started with.

    Attributes:
        name: of the node.
        folder: its own, also the working folder of its processes.
        host: what its kernel shows.
        gpus: what NVML says there; None: there is no NVML.
        env: variables of its processes on top of the common ones.
        prefix: words in front of the command, such as those of `unshare`.
        tasks: how many tasks of the vetting it has.
    """

    name: str
    folder: Path
    host: HostTree
    gpus: FakeGpus | None
    tasks: int
    env: dict[str, str] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)

    def tool(self, name: str, body: str) -> Path:
        """Put a shell script on this node's PATH, before everything else."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path


@dataclass(frozen=True)
class Vetted:
    """How a vetting ended.

    Attributes:
        code: exit code of the task that conducted.
        codes: of all tasks, by node.
        document: `cordee.vetting/1`; empty when none was printed.
        errors: standard error of the task that conducted.
        seconds: from the start of the first task to the end of the conducting one.
    """

    code: int
    codes: dict[str, list[int]]
    document: dict[str, Any]
    errors: str
    seconds: float

    def node(self, name: str) -> dict[str, Any]:
        """Return what the document says of a node."""
        return next(node for node in self.document["nodes"] if node["node"] == name)

    def rules(self, name: str) -> dict[str, str]:
        """Return evidence by the id of the rule that a node's results fall under."""
        results = self.node(name)["results"]
        return {result["rule"]["id"]: result["evidence"] for result in results if result.get("rule")}


class SimulatedNodes:
    """Nodes `n1` to `n<count>`, of which the first conducts.

    Args:
        folder: an empty one for everything.
        count: how many.
        gpus: GPUs on each; 0: no NVML at all.
        library: a folder that `support.nvml.build` returned.
        tasks: tasks per node.
    """

    def __init__(
        self, folder: Path, count: int = 4, gpus: int = 0, library: Path | None = None, tasks: int = 1
    ) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        self.shared.mkdir(parents=True)
        common = FakeGpus(folder / "nvml", gpus, library=library) if gpus else None
        self.nodes: dict[str, SimulatedNode] = {}
        self.processes: dict[str, list[subprocess.Popen[str]]] = {}
        for index in range(1, count + 1):
            name = f"n{index}"
            place = folder / name
            for part in ("bin", "tmp"):
                (place / part).mkdir(parents=True)
            host = HostTree(place / "host")
            self.nodes[name] = SimulatedNode(name, place, host, common.on(name) if common else None, tasks)
        self._began = 0.0

    def __getitem__(self, name: str) -> SimulatedNode:
        """Return a node by name."""
        return self.nodes[name]

    def vet(self, *evals: dict[str, Any], options: tuple[str, ...] = (), **top: Any) -> Vetted:
        """Vet with these evals, on all nodes, and return how it ended."""
        self.start(*evals, options=options, **top)
        return self.finish()

    def start(self, *evals: dict[str, Any], options: tuple[str, ...] = (), **top: Any) -> None:
        """Start all tasks of all nodes.

        Args:
            evals: of the protocol.
            options: more options of `cordee vet`.
            top: other keys of the protocol; the deadline is 30 s unless it is among them.
        """
        protocol = self.shared / "protocol.yaml"
        # JSON is YAML too.
        protocol.write_text(json.dumps({"name": "faults", "deadline": "30s", **top, "evals": list(evals)}))
        words = ["vet", str(protocol), "--json", "--dir", str(self.shared), *options]
        command = module_argv("cordee.faces.cli", *words, user_site=True)
        self._began = time.monotonic()
        for node in self.nodes.values():
            self.processes[node.name] = [
                subprocess.Popen(
                    [*node.prefix, *command],
                    env=self._env(node, local),
                    cwd=node.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=_log(node, local, "out"),
                    stderr=_log(node, local, "err"),
                    text=True,
                    start_new_session=True,
                )
                for local in range(node.tasks)
            ]

    def finish(self, patience_s: float = _PATIENCE_S) -> Vetted:
        """Wait for the task that conducts, then for the others, and return how it ended.

        Raises:
            subprocess.TimeoutExpired: a task that was not killed or stopped does not end; all are killed.
        """
        first = next(iter(self.processes))
        try:
            code = self.processes[first][0].wait(patience_s)
            seconds = time.monotonic() - self._began
            for process in self._all():
                if not _is_stopped(process.pid):
                    process.wait(patience_s)
        finally:
            self.kill()
        output = (self.folder / first / "0.out").read_text()
        return Vetted(
            code,
            {name: [process.returncode for process in started] for name, started in self.processes.items()},
            json.loads(output) if output.strip() else {},
            (self.folder / first / "0.err").read_text(),
            seconds,
        )

    def signal(self, name: str, number: int, local: int | None = None) -> None:
        """Send a signal to a node's tasks, or to one of them, and to all that they have started in their session."""
        for index, process in enumerate(self.processes[name]):
            if local in (None, index):
                os.killpg(process.pid, number)

    def kill(self) -> None:
        """End whatever is left."""
        for process in self._all():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _all(self) -> list[subprocess.Popen[str]]:
        return [process for started in self.processes.values() for process in started]

    def _env(self, node: SimulatedNode, local: int) -> dict[str, str]:
        env = {
            "PATH": f"{node.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(node.folder),
            "TMPDIR": str(node.folder / "tmp"),
            "PYTHONPATH": _SOURCE,
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "CORDEE_HOST_ROOT": str(node.host.root),
            "CORDEE_NODE": node.name,
            "CORDEE_VET_NODES": ",".join(self.nodes),
            "CORDEE_VET_NODE": node.name,
            "CORDEE_VET_TASKS_PER_NODE": str(node.tasks),
            "CORDEE_VET_LOCAL_RANK": str(local),
            "CORDEE_VET_ID": "faults",
        }
        if node.gpus is not None:
            env.update(node.gpus.env)
        return {**env, **node.env}


def _log(node: SimulatedNode, local: int, kind: str) -> Any:
    return open(node.folder / f"{local}.{kind}", "w")


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
