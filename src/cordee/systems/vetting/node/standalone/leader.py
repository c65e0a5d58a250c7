"""The task that conducts: serves the others, has every node checked as it comes, and makes one verdict of it."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import threading
import time
from typing import Any, Callable, Optional

from cordee import wire
from cordee.core.errors import EXIT_INTERNAL, CordeeError
from cordee.systems.vetting.node.judge.conduct import Conductor
from cordee.systems.vetting.node.judge.node_link import Question
from cordee.systems.vetting.node.standalone.check_runner import CheckRunner
from cordee.systems.vetting.node.standalone.membership import VettingRoster
from cordee.systems.vetting.node.standalone.messages import FROM_TASK, EndVetting, Leads, Pong
from cordee.systems.vetting.node.standalone.roster import Roster, Seat
from cordee.systems.vetting.node.standalone.settings import VetOptions, patience
from cordee.systems.vetting.node.standalone.shared_folder import SharedFolder
from cordee.wire.messages import decode, encode

_TELL_ALL_S = 5.0
_RETURN_S = 1.0
_LOAD_S = 60.0
_LATE_S = 5.0


class Conducting:
    """One task's turn at conducting.

    Args:
        world: who this task is.
        meeting: where the others find it; None when there are no others.
        hands: what runs this node's checks.
        options: what the command line says.
        began: when the vetting began, by the monotonic clock.
        lost: which node has conducted before and is gone.
    """

    def __init__(
        self,
        world: VettingRoster,
        meeting: Optional[SharedFolder],
        hands: CheckRunner,
        options: VetOptions,
        began: float,
        lost: Optional[int] = None,
    ) -> None:
        self._world, self._meeting, self._hands, self._options = world, meeting, hands, options
        self._began, self._lost = began, lost
        self._patience = patience(options.deadline_s, sum(world.tasks))
        self._seats = Roster(world)
        self._epoch = 0
        self._server: Optional[wire.Server] = None
        self._conductor: Optional[Conductor] = None
        self._results: dict[str, list[dict[str, Any]]] = {}
        self._checking: dict[str, asyncio.Future[None]] = {}
        self._left: Optional[int] = None
        self._superseded = asyncio.Event()

    async def run(self, epoch: int, publish: Callable[[dict[str, Any]], Optional[int]]) -> Optional[int]:
        """Conduct until the verdict, and return its exit code; None when another task conducts instead.

        Args:
            epoch: the epoch that this task has claimed.
            publish: makes the document public and returns the exit code, or None when another one has been published.

        Raises:
            CordeeError: the protocol is wrong, or the results cannot be written; the others have been told to end.
        """
        self._epoch = epoch
        beating: Optional[asyncio.Future[None]] = None
        if self._meeting is not None:
            self._server = await wire.serve(self._world.address(), None, wire.new_token(), self._connected)
            self._meeting.announce(self._server, epoch)
            beating = asyncio.ensure_future(self._beat(self._meeting))
        own = self._seats.by_name[self._world.node]
        own.take(self._world.local, None)
        address = self._server.address if self._server is not None else "127.0.0.1"
        self._hands.answer_to(own.lead(address, self._ask_here).message)
        work = asyncio.ensure_future(self._work(publish))
        superseded = asyncio.ensure_future(self._superseded.wait())
        try:
            await asyncio.wait({work, superseded}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            for task in (work, superseded, beating, *self._checking.values()):
                if task is not None:
                    task.cancel()
            self._hands.answer_to(None)
            if self._server is not None:
                self._server.close("it conducts no more")

    async def leave(self, code: int) -> None:
        """Tell all others the code to end with; waits a moment until they have heard it."""
        self._left = code
        connections = self._seats.connections()
        for connection in connections:
            connection.send(encode(EndVetting(code)))
        closed = [asyncio.ensure_future(connection.wait_closed()) for connection in connections]
        if closed:
            _, late = await asyncio.wait(closed, timeout=self._patience.answer)
            for one in late:
                one.cancel()

    def _ask_here(self, question: Question) -> bool:
        self._hands.message(question)
        return True

    async def _work(self, publish: Callable[[dict[str, Any]], Optional[int]]) -> Optional[int]:
        try:
            protocol = await self._load()
        except CordeeError as error:
            await self._tell_all(error.exit_code)
            raise
        try:
            code = publish(await self._vet(protocol))
        except CordeeError:
            await self.leave(EXIT_INTERNAL)
            raise
        if code is not None:
            await self.leave(code)
        return code

    async def _tell_all(self, code: int) -> None:
        """Tell also those that are about to come."""
        self._left = code
        await self._seats.wait(time.monotonic() + _TELL_ALL_S, self._seats.settled)
        await self.leave(code)

    async def _load(self) -> dict[str, Any]:
        protocol = self._meeting.protocol() if self._meeting is not None and self._world.index else None
        if protocol is None:
            protocol = await _in_time(self._options.load, self._options.deadline_s or _LOAD_S)
        if self._options.deadline_s is not None:
            protocol = {**protocol, "deadline_s": self._options.deadline_s}
        self._patience = patience(float(protocol["deadline_s"]), sum(self._world.tasks))
        if self._meeting is not None:
            self._meeting.keep(protocol)
        return protocol

    async def _vet(self, protocol: dict[str, Any]) -> dict[str, Any]:
        conductor = self._conductor = Conductor(protocol, identity_here(), self._options.min_nodes)
        deadline = self._began + float(protocol["deadline_s"])
        for seat in self._seats.by_name.values():
            self._check(seat)
        await self._wait_for_all(min(self._began + self._patience.arrive, self._began + conductor.checks_s))
        while any(not checking.done() for checking in self._checking.values()):
            await asyncio.wait(set(self._checking.values()))
        for checking in self._checking.values():
            checking.result()
        ranks = await self._seats.roll_call(min(time.monotonic() + self._patience.answer, deadline))
        reports: dict[str, Optional[list[dict[str, Any]]]] = {}
        for name, seat in self._seats.by_name.items():
            results = self._results.get(name)
            more = [ranks[name]] if name in ranks and seat.tasks > 1 else []
            reports[name] = None if results is None else [*results, *more]
        members = {name: seat.member for name, seat in self._seats.by_name.items() if seat.member and 0 in seat.living}
        left_s = max(0.0, deadline - time.monotonic())
        try:
            return await asyncio.wait_for(conductor.conclude(members, reports, left_s), left_s + _LATE_S)
        except asyncio.TimeoutError:
            raise CordeeError(f"no verdict came about within {_LATE_S:g} s of the deadline") from None

    async def _wait_for_all(self, until: float) -> None:
        """Wait for all tasks, but only a moment for those of a node that has conducted before and is gone."""
        if self._lost is None:
            await self._seats.wait(until, self._seats.settled)
            return
        predecessor = self._world.nodes[self._lost]
        others = [seat for name, seat in self._seats.by_name.items() if name != predecessor]
        soon = time.monotonic() + _RETURN_S
        await self._seats.wait(max(until, soon), lambda: all(seat.settled for seat in others))
        await self._seats.wait(soon, self._seats.settled)

    def _check(self, seat: Seat) -> None:
        """Have a node checked whose first task has just come, or come again."""
        conductor, member = self._conductor, seat.member
        if conductor is None or member is None:
            return
        left_s = self._began + conductor.checks_s - time.monotonic()
        request: dict[str, Any] = {"root": self._options.root} if self._options.root else {}

        async def check() -> None:
            self._results[seat.name] = await conductor.vet_node(member, left_s=left_s, **request)

        earlier = self._checking.pop(seat.name, None)
        if earlier is not None:
            earlier.cancel()
        self._checking[seat.name] = asyncio.ensure_future(check())

    def _connected(self, connection: wire.Connection) -> None:
        seat, local = self._seats.find(connection.peer_name)
        if seat is None:
            connection.close("this vetting has no such task")
            return
        connection.on_message, connection.on_close = self._message, self._closed
        connection.send(encode(Leads(self._world.index)))
        seat.take(local, connection)
        self._seats.hear(connection)
        if self._left is not None:
            connection.send(encode(EndVetting(self._left)))
        elif local == 0:
            seat.lead(connection.peer_address, lambda question: connection.send(encode(question)))
            self._check(seat)

    def _message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        seat, local = self._seats.find(connection.peer_name)
        if seat is None or seat.living.get(local) is not connection:
            return
        self._seats.hear(connection)
        said = decode(message, FROM_TASK)
        if local == 0 and seat.member is not None and not isinstance(said, Pong):
            seat.member.message(said, body)

    def _closed(self, connection: wire.Connection, error: Optional[Exception]) -> None:
        seat, local = self._seats.find(connection.peer_name)
        if seat is not None and seat.living.get(local) is connection:
            seat.leave(local, str(error) if error else connection.close_reason or "it ended")
        self._seats.changed.set()

    async def _beat(self, meeting: SharedFolder) -> None:
        """Show that this task lives, see who else does, and whether another task has begun to conduct.

        One that is alone with itself, cut off from the rest, does not take the nodes away from where most of them are.
        """
        while True:
            before = time.monotonic()
            await asyncio.sleep(self._patience.beat)
            if time.monotonic() - before > self._patience.silent / 2:
                self._seats.hear_all()
            self._seats.drop_silent(self._patience.silent)
            self._seats.ask()
            newest = meeting.epoch()
            if newest <= self._epoch:
                continue
            if 2 * self._seats.present() < len(self._world.nodes):
                self._superseded.set()
            elif self._server is not None and meeting.claim(newest + 1):
                self._epoch = newest + 1
                with contextlib.suppress(CordeeError):
                    meeting.announce(self._server, self._epoch)


async def _in_time(load: Callable[[], dict[str, Any]], most_s: float) -> dict[str, Any]:
    """Return what `load` returns; one that hangs, as on a dead file system, does not keep the process from ending.

    Raises:
        CordeeError: it took too long, or what it raised.
    """
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[dict[str, Any]] = loop.create_future()

    def settle(protocol: Optional[dict[str, Any]], error: Optional[BaseException]) -> None:
        if loaded.done():
            return
        if error is not None:
            loaded.set_exception(error)
        elif protocol is not None:
            loaded.set_result(protocol)

    def run() -> None:
        protocol, error = None, None
        try:
            protocol = load()
        except BaseException as problem:
            error = problem
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, protocol, error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return await asyncio.wait_for(loaded, most_s)
    except asyncio.TimeoutError:
        raise CordeeError(
            f"the protocol could not be read within {most_s:g} s", next="look at the file system that it is on"
        ) from None


def identity_here() -> dict[str, Any]:
    """Return who is vetted for whom: `run`, `job`, `cluster` and `user`, as far as known."""
    try:
        user: Optional[str] = getpass.getuser()
    except (KeyError, OSError):
        user = None
    names = {"run": "CORDEE_RUN_ID", "job": "SLURM_JOB_ID", "cluster": "SLURM_CLUSTER_NAME"}
    return {**{key: os.environ.get(name) for key, name in names.items()}, "user": user}
