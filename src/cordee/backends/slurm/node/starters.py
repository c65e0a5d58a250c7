"""Starts new agents in an allocation by `srun`: one for all nodes that need one at the same moment, and few of them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from cordee.control.identity import agent_file, read_record
from cordee.machine.processes.module_command import DEAF_AT_FIRST, OUTLIVED, module_argv
from cordee.runs.folder import RunFolder, say

_FIRST_RETRY_S = 5.0
_LONGEST_RETRY_S = 120.0
_ARRIVES_S = 60.0


@dataclass
class _Started:
    """One srun, which lives as long as any of its agents."""

    process: subprocess.Popen[bytes]
    nodes: dict[str, int]
    look_at: float


class Starters:
    """Replaces agents until they are there.

    One srun starts agents on all nodes that wait for one. Where it fails, as it does for all when Slurm refuses one node, its
    nodes are tried again in two halves, one srun at a time, with growing pauses.

    Args:
        folder: the run's folder.
        srun: the command that starts agents, without nodes.
        cores: of each agent's task; None: as Slurm likes.
        start: starts a command line; raises OSError.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        folder: RunFolder,
        srun: list[str],
        cores: Optional[str] = None,
        start: Optional[Callable[[list[str]], subprocess.Popen[bytes]]] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._srun, self._cores, self._clock = folder, srun, cores, clock
        self._popen = start or self._run
        self._wanted: dict[str, int] = {}
        self._new: dict[str, int] = {}
        self._again: list[dict[str, int]] = []
        self._started: list[_Started] = []
        self._pause, self._next = _FIRST_RETRY_S, 0.0

    def replace(self, node: str, incarnation: int) -> None:
        """Have a new agent started on a node whose agent of this incarnation is to make room, with the next `look`."""
        if not self._again and not self._new:
            self._pause = _FIRST_RETRY_S
        if self._wanted.get(node, -1) < incarnation:
            self._wanted[node] = self._new[node] = incarnation

    def look(self) -> None:
        """Start what is due, and look after what was started; once a second or so."""
        now = self._clock()
        for started in list(self._started):
            code = started.process.poll()
            if code is not None:
                self._started.remove(started)
                self._retry(self._absent(started.nodes), f"srun ended with {code}", now)
            elif now >= started.look_at:
                started.look_at = float("inf")
                self._retry(self._absent(started.nodes), f"not there after {_ARRIVES_S:.0f} s", now)
        for nodes in _by_incarnation(self._new):
            self._start(nodes, now)
        self._new = {}
        if self._again and now >= self._next:
            nodes = self._again.pop(0)
            self._next = now + self._pause
            still = self._absent({node: number for node, number in nodes.items() if self._wanted.get(node) == number})
            if still:
                self._start(still, now)

    def _absent(self, nodes: dict[str, int]) -> dict[str, int]:
        """Return those of the nodes that still wait: of which no newer agent has a record."""
        found = {}
        for node, incarnation in nodes.items():
            if self._wanted.get(node) != incarnation:
                continue
            if read_record(agent_file(self._folder, node)).get("incarnation", 0) > incarnation:
                del self._wanted[node]
            else:
                found[node] = incarnation
        return found

    def _retry(self, nodes: dict[str, int], why: str, now: float) -> None:
        if not nodes:
            return
        names = list(nodes)
        say(f"cordee supervisor: the agents of {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}: {why}")
        half = (len(names) + 1) // 2
        for part in (names[:half], names[half:]):
            if part:
                self._again.append({node: nodes[node] for node in part})
        self._next = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_RETRY_S)

    def _start(self, nodes: dict[str, int], now: float) -> None:
        agent = [*DEAF_AT_FIRST, *module_argv("cordee.control.agent.agent", "--folder", str(self._folder.root))]
        count = str(len(nodes))
        where = [f"--nodes={count}", f"--ntasks={count}", f"--nodelist={','.join(nodes)}"]
        if self._cores:
            where.append(f"--cpus-per-task={self._cores}")
        incarnation = next(iter(nodes.values()))
        try:
            script = str(os.getppid())
            process = self._popen([*OUTLIVED, script, *self._srun, *where, *agent, "--replaces", str(incarnation)])
        except OSError as error:
            self._retry(nodes, f"cannot be started: {error}", now)
            return
        self._started.append(_Started(process, nodes, now + _ARRIVES_S))

    def _run(self, argv: list[str]) -> subprocess.Popen[bytes]:
        with open(self._folder.control / "agents.log", "ab") as log:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=dict(os.environ)
            )


def _by_incarnation(nodes: dict[str, int]) -> list[dict[str, int]]:
    """Return the nodes in groups whose agents to be replaced have one incarnation: one srun has one command line."""
    groups: dict[int, dict[str, int]] = {}
    for node, incarnation in nodes.items():
        groups.setdefault(incarnation, {})[node] = incarnation
    return list(groups.values())
