"""One task's way through a vetting: follow whoever conducts, conduct when it is its turn, end with the verdict."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Optional

from cordee.core.errors import EXIT_INTERNAL, CordeeError
from cordee.machine.processes import tree as processes
from cordee.runs.folder import say
from cordee.systems.vetting.node.standalone.follower import TAKE_OVER, ConductorFollower
from cordee.systems.vetting.node.standalone.membership import VettingRoster
from cordee.systems.vetting.node.standalone.results import CODES, code_of, write_results
from cordee.systems.vetting.node.standalone.settings import VetOptions, patience
from cordee.systems.vetting.node.standalone.shared_folder import SharedFolder

if TYPE_CHECKING:
    from cordee.systems.vetting.node.standalone.check_runner import CheckRunner
    from cordee.systems.vetting.node.standalone.leader import Conducting

_CLOCKS_S = 2.0


class VettingPart:
    """What this process does in a vetting.

    Args:
        world: who it is.
        options: what the command line says.

    Attributes:
        code: what `run` returned.
        document: the allocation document, when this task has conducted to the end.
    """

    def __init__(self, world: VettingRoster, options: VetOptions) -> None:
        self._world, self._options = world, options
        self._began = time.monotonic()
        self._patience = patience(options.deadline_s, sum(world.tasks))
        self._meeting = None if world.alone else SharedFolder(options.folder, world.identity)
        # Another vetting may have used a name that people give; what it left is older than this process.
        self._since = 0.0 if world.unique else time.time() - _age_s() - _CLOCKS_S
        self._hands = _hands(world) if world.local == 0 else None
        self.code = EXIT_INTERNAL
        self.document: Optional[dict[str, Any]] = None
        self._conducting: Optional[Conducting] = None
        self._follower: Optional[ConductorFollower] = None

    async def run(self) -> int:
        """Return the exit code.

        Raises:
            CordeeError: this task conducts, and cannot.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Future[int] = loop.create_future()

        def tell(number: int) -> None:
            if not told.done():
                told.set_result(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, tell, number)
        work = asyncio.ensure_future(self._work())
        try:
            await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            return await self._stopped(128 + told.result())
        finally:
            work.cancel()
            if self._hands is not None:
                self._hands.end()

    async def _stopped(self, code: int) -> int:
        if self._follower is not None:
            self._follower.end()
        if self._conducting is not None:
            await self._conducting.leave(code)
            if self._meeting is not None:
                self._meeting.clear()
        return code

    async def _work(self) -> int:
        code: Optional[int] = None
        if self._meeting is None:
            code = await self._conduct(0, None)
            return EXIT_INTERNAL if code is None else code
        while True:
            self._follower = ConductorFollower(self._world, self._meeting, self._hands, self._patience, self._finished)
            code = await self._follower.run()
            if code == TAKE_OVER:
                code = await self._take_over(self._meeting, self._follower.conductor)
            if code is not None:
                return code

    def _finished(self) -> Optional[int]:
        """Return the exit code of this vetting when it has ended without this task."""
        assert self._meeting is not None
        code = self._meeting.decision(self._since)
        return code if code is not None else code_of(self._options.folder, self._world.identity, self._since)

    async def _take_over(self, meeting: SharedFolder, lost: Optional[int]) -> Optional[int]:
        meeting.open()
        epoch = meeting.epoch() + 1
        if not meeting.claim(epoch):
            return None
        if self._world.candidate == 0:
            meeting.forget()
        if lost is not None:
            say(f"cordee vet: {self._world.node} conducts now: {self._world.nodes[lost]} is gone")
        try:
            code = await self._conduct(epoch, lost)
        except CordeeError:
            meeting.clear()
            raise
        if code is not None:
            meeting.clear()
        return code

    async def _conduct(self, epoch: int, lost: Optional[int]) -> Optional[int]:
        from cordee.systems.vetting.node.standalone.leader import Conducting

        assert self._hands is not None
        began = self._began if lost is not None or not self._world.index else time.monotonic()
        self._conducting = Conducting(self._world, self._meeting, self._hands, self._options, began, lost)
        return await self._conducting.run(epoch, self._publish)

    def _publish(self, document: dict[str, Any]) -> Optional[int]:
        code = CODES[document["verdict"]]
        if self._meeting is not None and not self._meeting.decide(code):
            other = self._finished()
            if other is not None:
                return other
        self.document = {**document, "vetting": self._world.identity}
        write_results(self._options.folder, self.document, self._world.identity)
        return code


def _hands(world: VettingRoster) -> CheckRunner:
    from cordee.systems.vetting.node.standalone.check_runner import CheckRunner

    return CheckRunner(f"vet-{world.identity}/{world.node}/{os.getpid()}", world.node)


def _age_s() -> float:
    """Return for how many seconds this process has been running."""
    process = processes.read_process(os.getpid())
    if process is None:
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process.start_ticks / os.sysconf("SC_CLK_TCK")
