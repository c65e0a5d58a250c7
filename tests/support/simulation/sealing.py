"""Commands that read a run and seal its telemetry: the real lock, on the simulated disk, among processes that do nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordee.runs.turn import Taker, Turn
from support.simulation.loop import VirtualProcess
from support.simulation.surroundings import WorldPort

_LOCK = ".sealing"
_LEAST_S, _MOST_S = 0.05, 1.0


class VirtualTaker(Taker):
    """A virtual process that takes turns; all of them are on one host.

    Args:
        world: whose processes it can ask for.
    """

    def __init__(self, world: WorldPort) -> None:
        process = VirtualProcess.here()
        assert process is not None
        self.host, self.pid = "login", process.pid
        self._loop = world.loop

    def lives(self, pid: int) -> bool:
        """See `Taker.lives`."""
        return self._loop.lives(pid)


class Sealers:
    """Whoever seals a run's telemetry holds its lock, and nobody else.

    Args:
        world: that the run is in.
        broken: called with a rule and what was seen.
    """

    def __init__(self, world: WorldPort, broken: Callable[[str, str], None]) -> None:
        self._world, self._broken = world, broken
        self._sealing: list[VirtualProcess] = []

    def begin(self) -> VirtualProcess:
        """Start a command that seals, unless another one does."""
        return VirtualProcess(self._world.loop, "sealer", self._seal)

    async def _seal(self) -> int:
        await self._world.disk.answers()
        process = VirtualProcess.here()
        assert process is not None
        turn = Turn(self._world.folder.telemetry, _LOCK, self._world.disk, VirtualTaker(self._world))
        process.waits_for_disks = True
        try:
            if turn.take():
                await self._hold(process)
            turn.leave()  # but when it was killed
        except OSError:
            return 1
        return 0

    async def _hold(self, process: VirtualProcess) -> None:
        others = [other.pid for other in self._sealing if other.alive]
        if others:
            self._broken("two seal at once", f"process {process.pid} beside {others}")
        self._sealing.append(process)
        await asyncio.sleep(self._world.disk.chance.uniform(_LEAST_S, _MOST_S))
        self._sealing.remove(process)
