"""What an agent does to the machine that it runs on, and asks of it: the seam that a simulation takes the place of."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Collection, Iterator, Optional, Sequence

from cordee import wire
from cordee.control.agent.output import OutputLog
from cordee.control.agent.ranks.channels import RankChannels
from cordee.control.agent.ranks.unread_channels import may_go
from cordee.machine.gpus.affinity import range_list
from cordee.machine.inventory import read_slots
from cordee.machine.node_folder import sweep_abandoned
from cordee.machine.processes import tree as processes
from cordee.machine.processes.module_command import module_argv
from cordee.machine.slots import NodeSlots, SlotAllocator, union_of
from cordee.machine.tasks.task import TaskRunner
from cordee.runs.folder import RunFolder
from cordee.runs.lane import Lane
from cordee.runs.logframes import LogWriter
from cordee.runs.plan import RunSampling
from cordee.telemetry.node.samplers._base import Sampler
from cordee.telemetry.node.samplers.host import node_sampler, rank_sampler
from cordee.wire import messages

# How long ranks are waited for until they stand still: those in an uninterruptible sleep may take as long as their disk.
FREEZE_S = 0.5


def in_words_of_hello(has: NodeSlots) -> messages.Slots:
    """Return what a node has for tasks as it is told to the supervisor."""
    nodes = {core.numa: [other for other in has.cores if other.numa == core.numa] for core in has.cores}
    return messages.Slots(
        tuple(messages.CoreSlots(node, len(cores), range_list(union_of(cores))) for node, cores in nodes.items()),
        tuple(
            messages.GpuSlot(
                gpu.name,
                range_list(gpu.near),
                gpu.memory_bytes,
                tuple(messages.InstanceSlot(*part) for part in gpu.instances),
            )
            for gpu in has.gpus
        ),
        has.memory_bytes,
    )


class NodeTasks:
    """Called by one agent, on its loop; nothing here blocks for long."""

    def __init__(self) -> None:
        self._reading = Lane("cordee-reading")

    def take_over(self, owner: str) -> None:
        """Become the parent of what loses its own, and kill what earlier agents of `owner` (`run/node/`) left."""
        processes.become_subreaper()
        processes.sweep(owner)

    def ranks_of(self, owner: str, kept: Collection[str] = ()) -> list[Any]:
        """Return the living processes of all ranks that an agent with this prefix of markers started, but for Tasks that are kept."""
        return processes.of_ranks(owner, kept)

    def freeze(self, owner: str, mains: Collection[int]) -> list[int]:
        """Have ranks and all below them stand still, and return the processes that did not, parents before their children.

        Args:
            owner: the prefix of their markers, which a program may have taken out of its environment.
            mains: the main process of each rank that is known.
        """
        frozen: list[int] = []
        until = time.monotonic() + FREEZE_S
        # Again, since some may have just forked.
        while found := [process for process in _going_on(owner, mains) if process.pid not in frozen]:
            for generation in _generations(found):
                processes.kill_all(generation, signal.SIGSTOP)
                # A parent that waits for its children stands still only once it has run, and until then hears of them.
                while time.monotonic() < until and any(map(_runs, generation)):
                    time.sleep(0.0005)
                frozen += generation
        return frozen

    def thaw(self, frozen: Sequence[int]) -> None:
        """Let what `freeze` has returned go on: children first, since a parent that waits for them would hear that they stand still."""
        processes.kill_all(reversed(frozen), signal.SIGCONT)

    def tidy(self) -> None:
        """Remove, at leisure, what runs that are gone left in this node's memory; their disks may stand still."""
        Lane("cordee-tidying").submit(partial(sweep_abandoned, may_go=may_go))

    def identity(self) -> dict[str, Any]:
        """Return what `hello` says of this agent's process and machine."""
        return {
            "pid": os.getpid(),
            "start_ticks": getattr(processes.read_process(os.getpid()), "start_ticks", 0),
            "host": socket.gethostname(),
            "python": sys.version.split()[0],
        }

    def tasks(self, owner: str, **handlers: Any) -> TaskRunner:
        """Return what starts processes here; `handlers` as TaskRunner has them."""
        return TaskRunner(owner, **handlers)

    def slots(self) -> SlotAllocator:
        """Return what gives tasks their part of this node."""
        return SlotAllocator(read_slots)

    def channels(self, run: str, node: str, tell: Callable[[str], None], root: Path) -> RankChannels:
        """Return the channels of this node's ranks."""
        return RankChannels(run, node, tell, root=root)

    def samplers(
        self, node: str, pids: Callable[[], dict[int, int]], sampling: RunSampling, sharing: int
    ) -> tuple[Sampler, Sampler]:
        """Return what samples the node, and what samples its ranks; arguments as Telemetry has them."""
        deep = sampling.threads
        return node_sampler(node), rank_sampler(pids, sampling.interval_s, sharing=sharing, deep=deep)

    def log(self, path: Path, pressure: Callable[[bool], None], keep_bytes: Optional[int]) -> OutputLog:
        """Return what writes the ranks' output into a file, of which so many of the last bytes stay, or all."""
        return OutputLog(LogWriter(path, at_once=False, keep_bytes=keep_bytes), pressure)

    async def connect(self, folder: RunFolder, node: str, **handlers: Any) -> wire.Connection:
        """Return a connection to the supervisor that the rendezvous file names, once the run folder's disk has told it.

        The loop goes on meanwhile: without it nobody would end the ranks whose lease is over.

        Raises:
            OSError, WireError: there is none.
        """
        place = await self._reading.run(lambda: wire.read_rendezvous(folder.rendezvous))
        return await wire.connect(place.address, place.port, place.token, "agent", node, epoch=place.epoch, **handlers)

    async def has(self, folder: RunFolder) -> bool:
        """Return whether the run's folder is there, once its disk says so."""
        return await self._reading.run(folder.root.is_dir)

    def start_keeper(self, folder: RunFolder) -> int:
        """Start a keeper and return its pid; one that is not needed ends itself at once.

        Raises:
            OSError: it cannot be started.
        """
        command = module_argv("cordee.control.keeper", "--folder", str(folder.root))
        with open(folder.control / "keeper.log", "ab") as log:
            keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        keeper.returncode = 0
        return keeper.pid


def _going_on(owner: str, mains: Collection[int]) -> list[processes.Process]:
    """Return the processes of ranks and all below them that do not stand still."""
    table = processes.all_processes()
    found = {process.pid for process in processes.of_ranks(owner)}
    found |= {process.pid for process in table.values() if process.pid in mains or process.session in mains}
    found |= processes.descendants(found, table)
    return [table[pid] for pid in found if pid in table and _goes_on(table[pid])]


def _goes_on(process: Optional[processes.Process]) -> bool:
    return process is not None and process.state not in ("T", "Z", "X")


def _runs(pid: int) -> bool:
    return _goes_on(processes.read_process(pid))


def _generations(found: Sequence[processes.Process]) -> Iterator[list[int]]:
    """Yield the pids of processes, each after its parent."""
    parents = {process.pid: process.parent for process in found}
    while parents:
        oldest = [pid for pid, parent in parents.items() if parent not in parents] or list(parents)
        yield oldest
        for pid in oldest:
            del parents[pid]
