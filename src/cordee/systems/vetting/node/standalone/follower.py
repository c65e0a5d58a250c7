"""A task that does not conduct: finds the one that does, does what it asks, and ends with its verdict."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from cordee import wire
from cordee.core.errors import EXIT_INTERNAL, CordeeError
from cordee.runs.folder import say
from cordee.systems.vetting.node.standalone.membership import VettingRoster
from cordee.systems.vetting.node.standalone.messages import FROM_CONDUCTOR, EndVetting, Leads, Ping, Pong
from cordee.systems.vetting.node.standalone.settings import VetPatience
from cordee.systems.vetting.node.standalone.shared_folder import SharedFolder
from cordee.wire.messages import decode, encode

if TYPE_CHECKING:
    from cordee.systems.vetting.node.standalone.check_runner import CheckRunner

_CONNECT_S = 2.0
_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_AFTER_LOSS_S = 0.3
TAKE_OVER = -1


class ConductorFollower:
    """One task's search for a conductor, and its obedience.

    Args:
        world: who this task is.
        meeting: where the tasks find each other.
        hands: what runs checks; None for further tasks of a node.
        patience: how long to wait for what.
        finished: returns the exit code of a vetting that has ended already, None while it has not.

    Attributes:
        conductor: which node conducts, or did when it was last heard of; None: nobody was.
    """

    def __init__(
        self,
        world: VettingRoster,
        meeting: SharedFolder,
        hands: Optional[CheckRunner],
        patience: VetPatience,
        finished: Callable[[], Optional[int]],
    ) -> None:
        self._world, self._meeting, self._hands, self._patience = world, meeting, hands, patience
        self._finished = finished
        self._place = world.candidate
        self.conductor: Optional[int] = None
        self._heard = self._alone_since = time.monotonic()
        self._bye: Optional[int] = None
        self._ended = asyncio.Event()
        self._connection: Optional[wire.Connection] = None
        self._why = "nobody has written where to find it"

    async def run(self) -> int:
        """Return the exit code, or TAKE_OVER when this task is the next to conduct."""
        pause = _PAUSE_S
        while True:
            if await self._follow():
                pause, self._alone_since = _PAUSE_S, time.monotonic()
            code = self._bye if self._bye is not None else self._finished()
            if code is not None:
                return code
            waited = time.monotonic() - self._alone_since
            if self._place is not None and waited > self._turn_s(self._place):
                return TAKE_OVER
            if waited > self._patience.give_up:
                return self._give_up(waited)
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_PAUSE_S)

    def end(self) -> None:
        """Say goodbye to the conductor."""
        if self._connection is not None:
            self._connection.close("it was told to end")

    def _turn_s(self, place: int) -> float:
        if self.conductor is None:
            return self._patience.first * place
        return _AFTER_LOSS_S + self._patience.next * max(0, place - self.conductor - 1)

    def _give_up(self, waited: float) -> int:
        say(
            f"cordee vet {self._world.name}: nobody conducts this vetting after {waited:.0f} s: {self._why}\n"
            f"  given:   {self._meeting.root}\n"
            f"  next:    let --dir be a folder that all nodes share, and see what the first task said"
        )
        return EXIT_INTERNAL

    async def _follow(self) -> bool:
        """Connect to whoever conducts and obey until that ends; False when nobody is there."""
        place = self._meeting.rendezvous()
        if place is None:
            return False
        self._ended.clear()
        try:
            self._connection = await wire.connect(
                place.address,
                place.port,
                place.token,
                "agent",
                self._world.name,
                epoch=place.epoch,
                on_message=self._message,
                on_close=self._closed,
                timeout=_CONNECT_S,
            )
        except (OSError, CordeeError) as error:
            self._why = getattr(error, "text", str(error))
            return False
        self._heard = time.monotonic()
        if self._hands is not None:
            send = self._connection.send
            self._hands.answer_to(lambda answer, body: send(encode(answer), body))
        await self._obey(self._connection)
        return True

    async def _obey(self, connection: wire.Connection) -> None:
        while not self._ended.is_set():
            left = self._heard + self._patience.silent - time.monotonic()
            if left <= 0:
                self._why = f"the conductor has said nothing for {self._patience.silent:g} s"
                connection.close("no sign of life")
                break
            try:
                await asyncio.wait_for(self._ended.wait(), left)
            except asyncio.TimeoutError:
                continue
        if self._hands is not None:
            self._hands.answer_to(None)

    def _message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        if connection is not self._connection:
            return
        self._heard = time.monotonic()
        said = decode(message, FROM_CONDUCTOR)
        if isinstance(said, Leads):
            self.conductor = said.conductor
        elif isinstance(said, Ping):
            connection.send(encode(Pong()))
        elif isinstance(said, EndVetting):
            self._bye = said.code
            connection.close("bye")
            self._ended.set()
        elif self._hands is not None:
            self._hands.message(said)

    def _closed(self, connection: wire.Connection, error: Optional[Exception]) -> None:
        if connection is self._connection:
            self._why = str(error) if error else f"it ended: {connection.close_reason}"
            self._ended.set()
