"""A run whose agents reach their supervisor through a proxy that cuts, holds and swallows; everything is started by the test."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cordee.machine.processes.module_command import module_argv
from support.runs.real_run import LocalRun

# A supervisor that tells the proxy's port in place of its own, and leaves keeper and agents to the test.
_SUPERVISOR = """
import os, sys
from pathlib import Path
from cordee import wire
from cordee.backends.local.node.allocation import LocalAllocation
from cordee.control.supervisor import supervisor
LocalAllocation.beat = LocalAllocation.look_after = lambda self: None
LocalAllocation.replace_agent = lambda self, node, incarnation: None
LocalAllocation.agent_gone = lambda self, node, incarnation: False
real = wire.write_rendezvous
def write(path, address, port, epoch, token):
    Path(os.environ["REAL_PORT"]).write_text(str(port))
    real(path, address, int(os.environ["PROXY_PORT"]), epoch, token)
wire.write_rendezvous = write
raise SystemExit(supervisor.main())
"""


class ProxiedPair:
    """One proxied connection."""

    def __init__(self, name: str, agent: socket.socket, supervisor: socket.socket) -> None:
        self.name, self.agent, self.supervisor = name, agent, supervisor

    def cut(self) -> None:
        """End both of its halves."""
        for end in (self.agent, self.supervisor):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Forwards frames between agents and a supervisor.

    Attributes:
        held: nodes that cannot connect.
        swallowed: nodes whose connections stay open and carry nothing.
        cuts: (kind of message, whether it still arrives) at which the next connection breaks, each once.
        done: the cuts that were made.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.target = 0
        self.held: set[str] = set()
        self.swallowed: set[str] = set()
        self.cuts: set[tuple[str, bool]] = set()
        self.done: list[tuple[str, bool]] = []
        self._pairs: list[ProxiedPair] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, name: str) -> None:
        """Break the connections of a node."""
        for pair in [pair for pair in self._pairs if pair.name == name]:
            pair.cut()

    def close(self) -> None:
        """Accept no more, and break everything."""
        self._listener.close()
        for pair in self._pairs:
            pair.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                agent, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(agent,), daemon=True).start()

    def _serve(self, agent: socket.socket) -> None:
        try:
            supervisor = socket.create_connection(("127.0.0.1", self.target))
            agent.sendall(_frame(supervisor))
            hello = _frame(agent)
            pair = ProxiedPair(json.loads(hello[4:])["name"], agent, supervisor)
            if pair.name in self.held:
                pair.cut()
                return
            supervisor.sendall(hello)
            agent.sendall(_frame(supervisor))
        except (OSError, ValueError):
            agent.close()
            return
        self._pairs.append(pair)
        for source, target in ((agent, supervisor), (supervisor, agent)):
            threading.Thread(target=self._pump, args=(pair, source, target), daemon=True).start()

    def _pump(self, pair: ProxiedPair, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                frame = _frame(source)
                if pair.name in self.swallowed:
                    continue
                cut = self._cut_at(frame)
                if cut is not None:
                    self.done.append(cut)  # first: what arrives may end the run, and the test looks then
                if cut is None or cut[1]:
                    target.sendall(frame)
                if cut is not None:
                    break
        while pair.name in self.swallowed:  # nor does the end of a connection get through
            time.sleep(0.05)
        pair.cut()

    def _cut_at(self, frame: bytes) -> tuple[str, bool] | None:
        (length,) = struct.unpack_from("<I", frame, 4)
        header = json.loads(frame[8 : 8 + length])
        if not isinstance(header, dict):
            return None
        for arrives in (False, True):
            if (header["t"], arrives) in self.cuts:
                self.cuts.discard((header["t"], arrives))
                return header["t"], arrives
        return None


def _frame(source: socket.socket) -> bytes:
    (length,) = struct.unpack("<I", head := _exactly(source, 4))
    return head + _exactly(source, length)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise OSError("the connection has ended")
        data += more
    return data


class ProxiedRun:
    """A run behind a proxy; `run` reads its state, `supervisor` and `agents` are its processes."""

    def __init__(self, job: Path, runs: Path, nodes: int, **flags: Any) -> None:
        self.run = LocalRun(job, runs, vet__max_load=1000.0, **flags)
        self.folder = self.run.folder
        self.proxy = Proxy()
        real_port = self.folder.root / "real-port"
        marker = {"CORDEE_TASK": f"{self.folder.id}/control"}
        ports = {"REAL_PORT": str(real_port), "PROXY_PORT": str(self.proxy.port)}
        self._env = {**os.environ, **marker, **ports}
        self.supervisor = self._start("supervisor", [sys.executable, "-s", "-c", _SUPERVISOR])
        while not (real_port.exists() and real_port.read_text()):
            assert self.supervisor.poll() is None
            time.sleep(0.02)
        self.proxy.target = int(real_port.read_text())
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        for index in range(nodes):
            self.start_agent(index)

    def start_agent(self, index: int) -> None:
        """Start the agent of one more node."""
        self.agents[f"local-{index}"] = self._start(
            f"agent-{index}", module_argv("cordee.control.agent.agent", "--node", f"local-{index}")
        )

    def _start(self, log: str, command: list[str]) -> subprocess.Popen[bytes]:
        argv = [*command, "--folder", str(self.folder.root)]
        with (self.folder.control / f"{log}.log").open("ab") as file:
            return subprocess.Popen(argv, env=self._env, stdout=file, stderr=file, start_new_session=True)

    def end(self) -> None:
        """Kill everything."""
        for process in (self.supervisor, *self.agents.values()):
            process.kill()
            process.wait()
        self.proxy.close()
        self.run.end()


@contextlib.contextmanager
def proxied(job: Path, runs: Path, nodes: int, **flags: Any) -> Iterator[ProxiedRun]:
    """Begin a run behind a proxy, and end it whatever happens."""
    run = ProxiedRun(job, runs, nodes, **flags)
    try:
        yield run
    finally:
        run.end()
