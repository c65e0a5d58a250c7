"""One machine as the allocation of a supervisor."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any, Optional

from cordee import wire
from cordee.control.identity import agent_file, alive_here, read_record
from cordee.control.keeper_start import keeper_record, machine_nodes, start_keeper
from cordee.control.supervisor.allocation import Allocation
from cordee.control.supervisor.disks.startup import MemoryHeart
from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder, say, write_atomically
from cordee.runs.plan import RunPlan

_KEEPER_PAUSE_S = 1.0


class LocalAllocation(Allocation):
    """One machine: the nodes are processes under a keeper, which restarts what dies."""

    def __init__(self, folder: RunFolder, plan: RunPlan) -> None:
        super().__init__(folder, plan)
        self._keeper: Optional[dict[str, Any]] = None
        self._next_keeper = 0.0
        self._heart = MemoryHeart(folder)

    def node_names(self) -> list[str]:
        """Return `local-0`, `local-1` and so on."""
        return machine_nodes(self.plan)

    def address(self) -> str:
        """Return the loopback address."""
        return "127.0.0.1"

    def address_of(self, connection: wire.Connection) -> str:
        """Return the loopback address: all nodes share it."""
        return "127.0.0.1"

    def place(self, folder: RunFolder) -> str:
        """Start the keeper of another run, unless it has one."""
        record = keeper_record(folder)
        try:
            return f"pid {record['pid'] if record else start_keeper(folder)}"
        except OSError as error:
            raise CordeeError(f"cannot start the keeper of {folder.id}: {error}", given=str(folder.root)) from error

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
