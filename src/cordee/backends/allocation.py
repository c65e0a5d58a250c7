"""What an allocation can do for its supervisor beyond the agents: the seam between one machine and a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cordee import wire
from cordee.errors import CordeeError
from cordee.node import processes
from cordee.node.identity import agent_file, alive_here, identity, living_record, read_record
from cordee.node.memory import IN_USE, folders_of, remove_folder
from cordee.runs.folder import RunFolder, say, write_atomically
from cordee.runs.state import RunState
from cordee.starting import module_argv
from cordee.supervise.ownership import Ownership
from cordee.supervise.starting import SUPERVISOR, MemoryHeart

# What a supervisor exits with that the disk does not let begin: whoever starts it waits, and does not count that as a crash.
EXIT_REFUSED = 102
_KEEPER_PAUSE_S = 1.0
# Looks at the time of the folder of requests; some file systems show a time that is a while old, and a listing never.
_LISTED_EVERY = 5


class Place:
    """Called by the supervisor only; nothing here may raise.

    On its loop, so that it may not touch a disk: `beat`, `node_names`, `address`, `address_of`. Everything else may wait for
    one, in a thread, one call after the other.

    Args:
        folder: the run's folder.
        plan: its plan.

    Attributes:
        chains: whether the run can come back here after its allocation has ended.
        allocation: what tells this allocation from others; empty where there is only one.
    """

    chains = False

    def __init__(self, folder: RunFolder, plan: dict[str, Any]) -> None:
        self.folder = folder
        self.plan = plan
        self._requests_changed = self._looks_at_requests = 0

    @property
    def allocation(self) -> dict[str, Any]:
        return {}

    def identity(self) -> dict[str, Any]:
        """Return what tells this supervisor from any other."""
        return identity()

    def age_s(self) -> float:
        """Return the seconds for which the allocation has been ours already."""
        return 0.0

    def node_names(self) -> list[str]:
        """Return the names of all nodes of the allocation, spares included, in their order."""
        raise NotImplementedError("a place names its nodes")

    def address(self) -> str:
        """Return the address that agents reach this supervisor at."""
        raise NotImplementedError("a place knows its network")

    async def listen(self, token: bytes, epoch: int, on_connect: Callable[[wire.Connection], None]) -> wire.Server:
        """Listen for agents and clients at `address`; arguments as `wire.serve` has them."""
        return await wire.serve(self.address(), None, token, on_connect, epoch=epoch)

    def address_of(self, connection: wire.Connection) -> str:
        """Return the address at which other nodes reach the node of this agent."""
        return connection.peer_address

    def owner_alive(self, owner: dict[str, Any]) -> bool:
        """Return whether an earlier supervisor still runs."""
        return alive_here(owner)

    def duplicate_of(self, before: RunState) -> str | None:
        """Return the job that leads this run instead of this one; None when this one does."""
        return None

    def fate(self) -> str:
        """Return why the supervisor was told to end, in the words of `Allocation.fate`; may take seconds, in a thread."""
        return "cancelled"

    def go_on(self, how: str) -> dict[str, Any]:
        """Have the run begin another segment, and return `{how, job}`; may take minutes, in a thread.

        Raises:
            CordeeError: it cannot be had.
        """
        raise CordeeError("nothing here can run this job again", given=how)

    def replace_agent(self, node: str, incarnation: int) -> None:
        """Ask for a new agent on a node whose agent (of this incarnation) is hung or gone; does nothing where none can be had."""

    def agent_gone(self, node: str, incarnation: int) -> bool:
        """Return whether it is certain that this agent has ended."""
        return False

    def beat(self) -> None:
        """Show that the supervisor lives, several times a second."""

    def look_after(self) -> None:
        """Look, every second, after whoever would restart the supervisor, and after agents that are to come."""

    def requests(self, owner: Callable[[], str]) -> list[dict[str, Any]]:
        """Return and remove what clients have asked for since the last time (`{"request": "cancel", ...}`).

        Args:
            owner: says whose the run is, as `Ownership.look` does. It is asked once there are requests: who comes later has
                read them in the journal, and what was there for somebody who came earlier is left to that supervisor.
        """
        found: dict[Path, dict[str, Any]] = {}
        try:
            changed = os.stat(self.folder.requests).st_mtime_ns
            self._looks_at_requests += 1
            if changed == self._requests_changed and self._looks_at_requests % _LISTED_EVERY:
                return []
            names = sorted(os.listdir(self.folder.requests))
        except OSError:
            return []
        for name in names:
            path = self.folder.requests / name
            if not name.endswith(".json") or name.startswith("."):
                continue
            try:
                request = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            if isinstance(request, dict):
                found[path] = request
        self._requests_changed = changed if not names else 0
        return [request for path, request in found.items() if _removed(path)] if found and owner() == "ours" else []


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


class LocalPlace(Place):
    """One machine: the nodes are processes under a keeper, which restarts what dies."""

    def __init__(self, folder: RunFolder, plan: dict[str, Any]) -> None:
        super().__init__(folder, plan)
        self._keeper: dict[str, Any] | None = None
        self._next_keeper = 0.0
        self._heart = MemoryHeart(folder)

    def node_names(self) -> list[str]:
        """Return `local-0`, `local-1` and so on."""
        request = self.plan["steps"][0]["request"]
        return [f"local-{index}" for index in range(request["nodes"] + request["spare_nodes"])]

    def address(self) -> str:
        """Return the loopback address."""
        return "127.0.0.1"

    def address_of(self, connection: wire.Connection) -> str:
        """Return the loopback address: all nodes share it."""
        return "127.0.0.1"

    def replace_agent(self, node: str, incarnation: int) -> None:
        """Leave a note for the keeper, which kills that agent and starts the next."""
        try:
            path = agent_file(self.folder, node).with_suffix(".replace")
            write_atomically(path, json.dumps({"incarnation": incarnation}))
            if self._keeper is not None and alive_here(self._keeper):
                os.kill(self._keeper["pid"], signal.SIGUSR1)  # it finds the note a little later anyway
        except (CordeeError, OSError) as error:
            say(f"cordee supervisor: {error}")

    def agent_gone(self, node: str, incarnation: int) -> bool:
        """Return whether the keeper's record of this agent names a process that has ended."""
        record = read_record(agent_file(self.folder, node))
        if not record:
            return False
        return record["incarnation"] > incarnation or not alive_here(record)

    def beat(self) -> None:
        """Touch the heartbeat that the keeper watches."""
        self._heart.beat()

    def look_after(self) -> None:
        """Start a new keeper when the old one died."""
        if self._keeper is None or not alive_here(self._keeper):
            self._keeper = keeper_record(self.folder) or None
            if self._keeper is None and time.monotonic() >= self._next_keeper:
                self._next_keeper = time.monotonic() + _KEEPER_PAUSE_S
                try:
                    start_keeper(self.folder)
                except OSError as error:
                    say(f"cordee supervisor: cannot start a keeper: {error}")


def heartbeat(folder: RunFolder) -> int:
    """Return when the run's supervisor on this machine showed last that it lives, in ns of a clock of its own; 0: never."""
    hearts = [path / IN_USE for path in folders_of(folder.id, SUPERVISOR)]
    return max(_mtime_ns(path) for path in hearts or [folder.control / "heartbeat"])


def forget_heartbeat(folder: RunFolder) -> None:
    """Remove the heartbeat from this machine's memory: the run is over."""
    for path in list(folders_of(folder.id, SUPERVISOR)):
        remove_folder(path)


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def node_side_environment(folder: RunFolder) -> dict[str, str]:
    """Return the environment in which the run's own copy of the node side is imported, with a marker to find it by."""
    zipped = str(folder.node_zip)
    rest = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != zipped]
    marker = {processes.MARKER: f"{folder.id}/control"}
    return {**os.environ, "PYTHONPATH": os.pathsep.join([zipped, *rest]), **marker}


def keeper_record(folder: RunFolder) -> dict[str, Any]:
    """Return the identity of the run's living keeper, empty when there is none."""
    keepers = folder.control / "keepers"
    newest = Ownership(keepers).newest()
    return living_record(keepers / str(newest) / "owner.json") if newest else {}


def keeper_command(folder: RunFolder) -> list[str]:
    """Return the command line of a run's keeper."""
    return module_argv("cordee.supervise.keeper", "--folder", str(folder.root))


def start_keeper(folder: RunFolder) -> int:
    """Start a keeper that outlives this process and its terminal; returns its pid. One that is not needed ends itself.

    Raises:
        OSError: it cannot be started.
    """
    with open(folder.control / "keeper.log", "ab") as log:
        process = subprocess.Popen(
            keeper_command(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=node_side_environment(folder),
            start_new_session=True,
        )
    process.returncode = 0
    return process.pid
