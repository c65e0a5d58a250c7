"""What an allocation can do for its supervisor beyond the agents: the seam between one machine and a cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

from cordee import wire
from cordee.control.identity import alive_here, identity
from cordee.core.backends import backend_on_node
from cordee.core.errors import CordeeError
from cordee.core.parts import load
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder
from cordee.runs.plan import RunPlan
from cordee.runs.state import RunState

# Looks at the time of the folder of requests; some file systems show a time that is a while old, and a listing never.
_LISTED_EVERY = 5
# Tells a supervisor that the process which started it is gone: who asks it to end sends another signal.
ORPHANED = signal.SIGUSR2


def allocation_of(folder: RunFolder, plan: RunPlan) -> Allocation:
    """Return the allocation that this process runs in, by the plan's back end.

    Raises:
        CordeeError: there is no such back end, or this is no allocation of it.
    """
    back_end = backend_on_node(plan.backend, plan.backend_part)
    found: Allocation = load(back_end.allocation)(folder, plan)
    return found


class Allocation:
    """Called by the supervisor only; nothing here may raise.

    On its loop, so that it may not touch a disk: `beat`, `node_names`, `address`, `address_of`. Everything else may wait for
    one, in a thread, one call after the other.

    Args:
        folder: the run's folder.
        plan: its plan.

    Attributes:
        chains: whether the run can come back here after its allocation has ended, as the back end's abilities have it.
        allocation: what tells this allocation from others; empty where there is only one.
    """

    def __init__(self, folder: RunFolder, plan: RunPlan) -> None:
        self.folder = folder
        self.plan = plan
        self._requests_changed = self._looks_at_requests = 0

    @property
    def chains(self) -> bool:
        return backend_on_node(self.plan.backend, self.plan.backend_part).abilities.chains

    @property
    def seals(self) -> bool:
        """Whether all telemetry of the run is here, so that it can be sealed and reported on."""
        return backend_on_node(self.plan.backend, self.plan.backend_part).abilities.shares_files

    @property
    def allocation(self) -> dict[str, Any]:
        return {}

    def identity(self) -> dict[str, Any]:
        """Return what tells this supervisor from any other."""
        return identity()

    def age_s(self) -> float:
        """Return the seconds for which the allocation has been ours already."""
        return 0.0

    def lost_at(self) -> Optional[float]:
        """Return when the allocation before this one went, in UTC epoch seconds, None: the run's files tell by their times."""
        return None

    def node_names(self) -> list[str]:
        """Return the names of all nodes of the allocation, spares included, in their order."""
        raise NotImplementedError("an allocation names its nodes")

    def address(self) -> str:
        """Return the address that agents reach this supervisor at."""
        raise NotImplementedError("an allocation knows its network")

    async def listen(self, token: bytes, epoch: int, on_connect: Callable[[wire.Connection], None]) -> wire.Server:
        """Listen for agents and clients at `address`; arguments as `wire.serve` has them."""
        return await wire.serve(self.address(), None, token, on_connect, epoch=epoch)

    def address_of(self, connection: wire.Connection) -> str:
        """Return the address at which other nodes reach the node of this agent."""
        return connection.peer_address

    def owner_alive(self, owner: dict[str, Any]) -> bool:
        """Return whether an earlier supervisor still runs."""
        return alive_here(owner)

    def duplicate_of(self, before: RunState) -> Optional[str]:
        """Return the job that leads this run instead of this one; None when this one does."""
        return None

    def fate(self) -> str:
        """Return why the supervisor was told to end, in the words of `node.allocation.fate_of`; may take seconds, in a thread."""
        return "cancelled"

    def go_on(self, how: str) -> dict[str, Any]:
        """Have the run begin another segment, and return `{how, job}`; may take minutes, in a thread.

        Raises:
            CordeeError: it cannot be had.
        """
        raise CordeeError("nothing here can run this job again", given=how)

    def let_go(self, ended: bool) -> None:
        """Give the allocation back, as the last act, where nobody else does; may take minutes, in a thread.

        Args:
            ended: whether the run is over, not only its segment.
        """

    def place(self, folder: RunFolder) -> str:
        """Hand another run to where this one came from, and return the place's name for it; may take minutes, in a thread.

        A run that is placed already is not placed twice.

        Raises:
            CordeeError: it cannot be placed.
        """
        raise CordeeError("nothing here can start another run", given=folder.id)

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
                request = read_json(path, self.folder.root)
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
