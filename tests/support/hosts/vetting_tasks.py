"""Many nodes on one machine: real processes that vet together, and a check that waits for the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cordee.testing.patience import wait_until

PROGRAM = """
import json, sys
from cordee.core.errors import CordeeError, DocumentError
from cordee.systems.vetting.node.standalone import VetOptions, take_part

settings = json.loads(sys.argv[1])

def load():
    import pydantic, yaml
    if settings["protocol"] is None:
        raise DocumentError("a check is mistyped", file="protocol.yaml", line=3)
    return settings["protocol"]

try:
    code = take_part(VetOptions(load, settings["folder"], settings["min_nodes"], as_json=True))
except CordeeError as error:
    print(error, file=sys.stderr)
    code = error.exit_code
heavy = [name for name in ("pydantic", "yaml", "click", "numpy") if name in sys.modules]
print("heavy:", *heavy, file=sys.stderr)
sys.exit(code)
"""

GATE = """
import os, time
from cordee.systems.vetting.node.checks import Check, Parameter

class Gate(Check):
    name = "test.gate"
    title = "Does the test let this node through?"
    parameters = (Parameter("folder", "text", "where the test looks"),)
    def run(self, parameters, context):
        with open(os.path.join(parameters["folder"], "came-" + context.node), "a") as file:
            file.write("once\\n")
        while not os.path.exists(os.path.join(parameters["folder"], "go")):
            time.sleep(0.01)
        return self.result("pass", "let through")
"""


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return what `condition` gives once it is true."""
    return wait_until(condition, seconds, every_s=0.01)


class VettingTasks:
    """The tasks of one vetting.

    Args:
        folder: where the results go, and the gate is.
        nodes, tasks: how many nodes, and tasks on each.
        checks: what else the protocol asks; None: the protocol is wrong.
        gate: whether all nodes wait for `let_go`.
        deadline_s: of the protocol.
        absent: (node, task) that are not started, counted from 1 and 0.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int,
        tasks: int = 1,
        *,
        checks: Sequence[dict[str, Any]] | None = (),
        gate: bool = False,
        deadline_s: float = 30.0,
        absent: tuple[tuple[int, int], ...] = (),
        identity: str = "v",
        min_nodes: int | None = None,
    ) -> None:
        self.folder, self.nodes, self.identity = folder, nodes, identity
        self.meeting = folder / f".cordee-vet-{identity}"
        settings: dict[str, Any] = {"protocol": None, "folder": str(folder), "min_nodes": min_nodes}
        if checks is not None:
            settings["protocol"] = self._protocol(list(checks), gate, deadline_s)
        self.processes: dict[tuple[int, int], subprocess.Popen[str]] = {}
        for node in range(1, nodes + 1):
            for task in range(tasks):
                if (node, task) not in absent:
                    env = {
                        **os.environ,
                        "CORDEE_VET_ID": identity,
                        "CORDEE_VET_NODES": f"s[1-{nodes}]",
                        "CORDEE_VET_NODE": f"s{node}",
                        "CORDEE_VET_LOCAL_RANK": str(task),
                        "CORDEE_VET_TASKS_PER_NODE": str(tasks),
                    }
                    command = [sys.executable, "-c", PROGRAM, json.dumps(settings)]
                    self.processes[node, task] = subprocess.Popen(
                        command,
                        env=env,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                        start_new_session=True,
                    )

    def _protocol(self, checks: list[dict[str, Any]], gate: bool, deadline_s: float) -> dict[str, Any]:
        from cordee.systems.vetting.node.judge.conduct import plain_protocol

        protocol = plain_protocol(deadline_s)
        protocol["checks"] = [
            {"check": "host.memory", "name": "memory", "parameters": {"min_bytes": 1}, "required": True}
        ]
        protocol["checks"] += checks
        if gate:
            (self.folder / "gate.py").write_text(GATE)
            protocol["classes"] = {"test.gate": f"{self.folder}/gate.py:Gate"}
            where = {"folder": str(self.folder)}
            protocol["checks"].append({"check": "test.gate", "name": "gate", "parameters": where, "required": True})
        return protocol

    def __enter__(self) -> VettingTasks:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()

    def wait_at_the_gate(self, *nodes: int) -> None:
        """Return once the checks of all these nodes run."""

        def all_came() -> bool:
            if any(process.poll() is not None for process in self.processes.values()):
                raise AssertionError(f"tasks ended before the gate: {self.end()}, {self.said}")
            return all((self.folder / f"came-s{node}").exists() for node in nodes or range(1, self.nodes + 1))

        wait_for(all_came)

    def let_go(self) -> None:
        """Let the checks end."""
        (self.folder / "go").touch()

    def send(self, node: int, number: int, task: int = 0) -> None:
        """Send a task a signal."""
        self.processes[node, task].send_signal(number)

    def end(self, *but: tuple[int, int], seconds: float = 60.0) -> dict[tuple[int, int], int]:
        """Return the exit codes of all tasks but these, once they have ended; what they said is in `said`."""
        self.said = {
            key: process.communicate(timeout=seconds) for key, process in self.processes.items() if key not in but
        }
        return {key: self.processes[key].returncode for key in self.said}

    @property
    def document(self) -> dict[str, Any]:
        """vet.json."""
        found: dict[str, Any] = json.loads((self.folder / "vet.json").read_text())
        return found

    def results(self, node: int) -> dict[str, dict[str, Any]]:
        """Return a node's results by name."""
        found = next(entry for entry in self.document["nodes"] if entry["node"] == f"s{node}")
        return {result["name"] or result["check"]: result for result in found["results"]}
