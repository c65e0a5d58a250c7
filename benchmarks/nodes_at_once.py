"""10,000 nodes do the same at one moment: the longest that this holds up a supervisor's loop, without sockets.

    python benchmarks/nodes_at_once.py --nodes 10000 --per-node 10

The supervisor, its journal and its disk are real, and so are the frames, seals and messages of `cordee.wire`. Agents are those of
`scale.py`, in the same process; bytes go from one end to the other in memory, a hundred connections in a pass of the loop as the
supervisor's selector has it. Only what the supervisor's side does counts, in CPU seconds of its thread; the table has the longest
callback and the longest pass of the loop for each thing that all nodes do at once. Garbage is not collected, as agents are in
the same process: `scale.py` has what that takes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scale import RUN, Notes, Simulated, name_of, write_plan

from cordee import wire
from cordee.control.supervisor.allocation import Allocation
from cordee.control.supervisor.supervisor import Supervisor
from cordee.control.supervisor.timing.passes import CONNECTIONS_A_PASS
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.plan import read_plan

LOST_S = 36_000.0  # agents say nothing of themselves here, however long this takes
SILENT_S = 1e6
SLOW_S = 0.05


class Cable:
    """Bytes between two ends in memory; what has come is handed over a part of the connections at a time."""

    def __init__(self) -> None:
        self._waiting: dict[Transport, bytearray] = {}
        self._handing = False

    def carry(self, to: Transport, data: bytes) -> None:
        """Take bytes for an end."""
        self._waiting.setdefault(to, bytearray()).extend(data)
        if not self._handing:
            self._handing = True
            asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        loop = asyncio.get_running_loop()
        for end in list(self._waiting)[:CONNECTIONS_A_PASS]:
            loop.call_soon(end.arrive, bytes(self._waiting.pop(end)))
        self._handing = bool(self._waiting)
        if self._handing:
            loop.call_soon(self._hand_over)


class Transport:
    """What one end writes to."""

    def __init__(self, cable: Cable, of_supervisor: bool) -> None:
        self.cable, self.of_supervisor = cable, of_supervisor
        self.peer: Transport
        self.connection: wire.Connection
        self._closed = False

    def arrive(self, data: bytes) -> None:
        """Hand bytes to the end."""
        if not self._closed:
            self.connection.data_received(data)

    def write(self, data: bytes) -> None:
        """See asyncio."""
        self.cable.carry(self.peer, data)

    def get_write_buffer_size(self) -> int:
        """Return that all has been taken."""
        return 0

    def get_extra_info(self, name: str) -> Any:
        """Return an address, and a socket that takes any option."""
        return ("127.0.0.1", 1) if name == "peername" else SimpleNamespace(setsockopt=lambda *_: None)

    def abort(self) -> None:
        """End both ends."""
        loop = asyncio.get_running_loop()
        for end in (self, self.peer):
            if not end._closed:
                end._closed = True
                loop.call_soon(end.connection.connection_lost, None)

    close = write_eof = abort


def connected(cable: Cable, name: str, on_connect: Callable[[wire.Connection], None], agent: Simulated) -> None:
    """Connect an agent with the supervisor, as after their handshake."""
    ends = [Transport(cable, True), Transport(cable, False)]
    for end, other, keys in zip(ends, reversed(ends), ((b"a", b"b"), (b"b", b"a")), strict=True):
        end.peer, end.connection = other, wire.Connection()
        end.connection.connection_made(end)
        end.connection._trust(*keys)
        end.connection.peer_epoch = 1
    here, there = (end.connection for end in ends)
    here.peer_role, here.peer_name = "agent", name
    there.peer_role = "server"
    on_connect(here)
    agent.meet(there)


class InProcess(Allocation):
    """An allocation whose agents are in this process."""

    def node_names(self) -> list[str]:
        """See `Allocation`."""
        return [f"local-{index}" for index in range(self.plan.step.request.nodes)]

    def address(self) -> str:
        """See `Allocation`."""
        return "127.0.0.1"

    async def listen(self, token: bytes, epoch: int, on_connect: Callable[[wire.Connection], None]) -> Any:
        """Keep what takes connections."""
        self.on_connect = on_connect
        return SimpleNamespace(port=1, close=lambda reason="": None)


class Watch:
    """CPU seconds of the supervisor's side of this loop, since the last time that somebody asked."""

    def __init__(self) -> None:
        self._of_agents = False
        self.tell()
        run, once = asyncio.Handle._run, asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]

        def timed(handle: Any) -> None:
            if self.is_agents(handle):
                run(handle)
                return
            began = time.thread_time()
            run(handle)
            took = time.thread_time() - began
            self.spent += took
            self._pass += took
            if took > self.longest[0]:
                self.longest = (took, name_of(handle))
            if took > SLOW_S:
                self.slow += 1

        def passed(loop: Any) -> None:
            self.longest_pass, self._pass = max(self.longest_pass, self._pass), 0.0
            once(loop)

        asyncio.Handle._run = timed  # type: ignore[attr-defined,method-assign]
        asyncio.BaseEventLoop._run_once = passed  # type: ignore[attr-defined]

    @staticmethod
    def is_agents(handle: Any) -> bool:
        """Return whether a callback is the agents' or the driver's."""
        owner = getattr(handle._callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            return owner.get_name() == "driver"
        return isinstance(owner, Cable) or (isinstance(owner, Transport) and not owner.of_supervisor)

    def tell(self) -> dict[str, Any]:
        """Return it, and begin anew."""
        said = {name: getattr(self, name, 0) for name in ("spent", "longest", "longest_pass", "slow")}
        self.spent = self.longest_pass = self._pass = 0.0
        self.longest, self.slow = (0.0, ""), 0
        return said


async def lead(options: argparse.Namespace, folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Lead a run through all that its nodes do at once, and return what each took."""
    asyncio.current_task().set_name("driver")  # type: ignore[union-attr]
    watch, cable, said = Watch(), Cable(), asyncio.Queue[str]()
    notes = Notes(options.nodes - options.missing, said.put_nowait)
    place = InProcess(folder, read_plan(folder))
    supervisor = Supervisor(folder, place)
    loop = asyncio.get_running_loop()
    serving = loop.create_task(supervisor.serve())
    while not hasattr(place, "on_connect"):
        await asyncio.sleep(0.01)
    rows: dict[str, dict[str, Any]] = {}

    async def phase(name: str, wanted: str) -> None:
        while True:
            told = await asyncio.wait_for(said.get(), options.patience)
            if told == wanted:
                break
        rows[name] = {**watch.tell(), "seconds": time.monotonic() - began}

    began = time.monotonic()
    agents = [Simulated(name, options.per_node, notes, 0.0) for name in place.node_names()[options.missing :]]
    for index, agent in enumerate(agents):
        connected(cable, agent.name, place.on_connect, agent)
        if index % CONNECTIONS_A_PASS == 0:
            await asyncio.sleep(0)
    await phase("all come", "there")
    if options.missing:
        supervisor.run._deadline = time.monotonic()
        supervisor._changed()
    await phase("all are vetted, judged and chosen: the first order", "first 1")
    await phase("all are ordered", "last 1")
    await quiet(loop)
    rows["all ranks have started"] = {**watch.tell(), "seconds": time.monotonic() - began}
    await asyncio.sleep(options.seconds)
    rows[f"training for {options.seconds:g} s"] = {**watch.tell(), "seconds": time.monotonic() - began}
    if options.missing:  # the next attempt would wait a minute for them
        serving.cancel()
        await asyncio.wait([serving])
        return rows
    for agent in agents:
        agent.end(1, None, "exited")
    began = time.monotonic()
    await phase("all ranks fail: the first order", "first 2")
    await phase("all ranks fail: all are ordered again", "last 2")
    await quiet(loop)
    watch.tell()
    began = time.monotonic()
    for node in supervisor.nodes.values():
        node.last_heard -= SILENT_S
    while any(node.session is not None for node in supervisor.nodes.values()):
        await asyncio.sleep(0.01)
    rows["all nodes fall silent"] = {**watch.tell(), "seconds": time.monotonic() - began}
    serving.cancel()
    await asyncio.wait([serving])
    return rows


async def quiet(loop: asyncio.AbstractEventLoop) -> None:
    """Wait until the loop has nothing at once to do."""
    calm = 0
    while calm < 5:
        await asyncio.sleep(0.05)
        calm = calm + 1 if len(loop._ready) < 3 else 0  # type: ignore[attr-defined]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--per-node", type=int, default=10, help="ranks")
    parser.add_argument("--missing", type=int, default=0, help="nodes whose agents never come")
    parser.add_argument("--seconds", type=float, default=5.0, help="of training")
    parser.add_argument("--patience", type=float, default=120.0, help="longest wait, in seconds")
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    gc.disable()
    with tempfile.TemporaryDirectory(prefix="nodes-") as scratch:
        folder = RunFolder.create(Path(scratch), RUN)
        folder.code.mkdir()
        write_plan(folder, options.nodes, options.per_node, options.missing, LOST_S)
        client_journal(folder.journal).append("submitted", backend="local", nodes=options.nodes, ranks=0)
        rows = asyncio.run(lead(options, folder))
        events = len(read_journal(folder.journal))
    print("| what | CPU s | seconds | longest callback, ms of CPU | longest pass, ms of CPU | callbacks over 50 ms |")
    print("|---|---|---|---|---|---|")
    for name, row in rows.items():
        longest, which = row["longest"]
        print(
            f"| {name} | {row['spent']:.2f} | {row['seconds']:.2f} | {1000 * longest:.1f} | {1000 * row['longest_pass']:.1f}"
            f" | {row['slow']} |  <!-- {which[:120]} -->"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(f"\n{events} events; peak memory of supervisor and agents together: {peak:.0f} MB")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
    os._exit(0)
