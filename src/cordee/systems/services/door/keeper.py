"""`python -m cordee.systems.services.door.keeper FOLDER`: runs the proxy, and leads each door's address to where its service is now.

It follows what services say of themselves, wakes those that nobody used, hands over before an allocation ends, and counts requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import CordeeError
from cordee.core.parts import load
from cordee.machine.processes.tree import all_processes, is_same_process, kill_all, read_process
from cordee.runs.folder import say, write_atomically
from cordee.systems.services.deployment import changing, hand_over_is_open, start, status_of, web_target, wish_of
from cordee.systems.services.door._base import Door, DoorRoute, DoorSettings
from cordee.systems.services.door.folder import DOORS, DoorFolder
from cordee.systems.services.door.requests import RequestCount
from cordee.systems.services.handover import due_handover, hand_over
from cordee.systems.services.instance import ServiceError, ServiceFolder, deployed
from cordee.systems.services.node.texts import read_state, state_path

_LOOK_S = 0.3
# A first proxy that ends sooner has a fault that another would have, too.
_LEAST_S = 5.0
_TELL_S = 5.0
# How long the proxy may take to follow, and the pause until it is asked again.
_FOLLOW_S, _FOLLOW_LOOK_S = 10.0, 0.05
_WORKERS = 8
# After a try that failed.
_PAUSE_S = 60.0


class DoorKeeper:
    """Keeps one person's door; `serve` returns when it was told to end, or the proxy has ended."""

    def __init__(self, folder: DoorFolder) -> None:
        self._folder, self._given = folder, folder.settings()
        given = {key: self._given[key] for key in ("address", "certificate", "key")}
        header = self._given.get("user_header", "")
        secret = folder.proxy_secret().read_text() if header else ""
        settings = DoorSettings(hold=folder.hold, **given, user_header=header, proxy_secret=secret)
        self._door: Door = load(DOORS[self._given["kind"]])(folder.root, settings)
        self._count = RequestCount(folder.root, self._reopen)
        self._routes: list[DoorRoute] | None = None
        self._proxy: subprocess.Popen[bytes] | None = None
        self._pid, self._proxy_began, self._stood = 0, 0.0, False
        self._news = asyncio.Event()
        self._ending = asyncio.Event()
        self._pool = ThreadPoolExecutor(_WORKERS)
        self._busy: dict[str, asyncio.Future[Any]] = {}
        self._not_before: dict[str, float] = {}
        self._told_at, self._taken = 0.0, True
        self._follow_by: float | None = None
        self._troubles: dict[str, str] = {}

    async def serve(self) -> int:
        """Serve until the end; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        self._let_go()
        self._folder.hold.unlink(missing_ok=True)
        os.umask(0o077)
        server = await asyncio.start_unix_server(self._held, str(self._folder.hold), backlog=1024)
        code = 0
        try:
            while not self._ending.is_set():
                await self._look()
                if not self._runs_on():
                    code = 1
                    break
                try:
                    pause_s = _LOOK_S if self._follow_by is None else _FOLLOW_LOOK_S
                    await asyncio.wait_for(self._ending.wait(), pause_s)
                except TimeoutError:
                    continue
        finally:
            server.close()
            pid = self._living() or (self._pid if self._proxy is not None else 0)
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            if self._proxy is not None:
                self._proxy.wait()
            self._count.look()
            (self._folder.root / "keeper.json").unlink(missing_ok=True)
            self._pool.shutdown(wait=False, cancel_futures=True)
        return code

    def _runs_on(self) -> bool:
        """Have a proxy that has ended started again by the next look; False: it cannot run."""
        if self._proxy is not None and self._proxy.poll() is not None:
            say(f"cordee door: the proxy ended with exit code {self._proxy.returncode}")
            self._stood = self._stood or monotonic() - self._proxy_began > _LEAST_S
            if self._proxy.returncode > 0 and not self._stood:
                return False
            self._proxy = None
        if self._proxy is None and not self._living():
            self._let_go()
            self._pid, self._routes, self._follow_by = 0, None, None
        return True

    def _let_go(self) -> None:
        """Have what a killed proxy has left finish what it has begun, and free its ports."""
        left, table = self._folder.left(), all_processes()
        if not left.get("proxy"):
            return
        proxy, began = table.get(left["proxy"]), left["proxy_start"]
        # Nobody may have reaped it: then its pid stays, and its workers hold the ports all the same.
        if proxy is None or (proxy.start_ticks == began and proxy.state in ("Z", "X")):
            own = (one for one in table.values() if one.session == left["proxy"])
            kill_all((one.pid for one in own if one.start_ticks >= began), self._door.finish_signal)

    # Where services are

    async def _look(self) -> None:
        if self._follow_by is not None and not self._follows(self._follow_by):
            return
        routes = await self._in_thread(self._find_routes)
        changed = routes != self._routes
        if changed:
            self._routes = routes
            self._door.write(routes)
            self._news.set()
            self._news = asyncio.Event()
        if changed or not self._taken:
            self._taken = self._reload()
            if self._taken:
                self._follow_by = monotonic() + _FOLLOW_S
                self._follows(self._follow_by)
        elif monotonic() - self._told_at > _TELL_S:
            self._tell()
            await self._in_thread(self._count.look)

    def _follows(self, until: float) -> bool:
        """Tell of the routes once all requests go by them, and never before: who waits for that ends what they led to. Returns whether it is settled."""
        if self._door.follows(self._pid):
            self._tell()
        elif monotonic() < until:
            return False
        else:
            say("cordee door: the proxy does not take what was written: see error.log")
        self._follow_by = None
        return True

    def _find_routes(self) -> list[DoorRoute]:
        return [route for folder in deployed() if (route := self._route(folder)) is not None]

    def _route(self, folder: ServiceFolder) -> DoorRoute | None:
        """Return the way to a service, the one before where it cannot be read now; None: it has no door."""
        try:
            record = folder.record()
            if not record.get("door"):
                return None
            loaded = folder.blueprint()
            blueprint = loaded.blueprint
            target = ""
            now = status_of(folder)
            if now.ready and not record.get("holding"):
                run = folder.run()
                told = read_state(state_path(run.root, folder.name)) if run is not None else {}
                target = web_target(told)
            if hand_over_is_open(record):
                self._loop.call_soon_threadsafe(self._do, folder.name, partial(_settle, folder))
            else:
                self._hand_over_if_due(folder, record)
            token = folder.door_token() if blueprint.guard == "none" else ""
        except Exception as error:  # whatever it is: the other services go on, and this one's way stays
            if str(error) != self._troubles.get(folder.name):
                self._troubles[folder.name] = str(error)
                say(f"cordee door: {folder.name}: {type(error).__name__}: {error}")
            return self._named(folder.name)
        quota = blueprint.door
        limits = quota.requests_per_s, quota.connections, quota.body
        key = (
            f"Bearer {folder.secret('token').read_text().strip()}" if blueprint.guard == "token" and quota.users else ""
        )
        return DoorRoute(folder.name, record["door"], target, token, *limits, quota.users, key)

    def _reload(self) -> bool:
        """Have the proxy take what was written, one that runs or a new one; returns whether it does."""
        if self._pid:
            return self._door.reload(self._pid)
        pid = self._living()
        if pid:
            self._pid, self._stood = pid, True
            return self._door.reload(pid)
        self._proxy_began = monotonic()
        self._proxy = subprocess.Popen(self._door.argv(), stdin=subprocess.DEVNULL, start_new_session=True)
        self._pid = self._proxy.pid
        return True

    def _living(self) -> int:
        """Return the pid of a proxy that a keeper before this one has left, 0 where there is none."""
        left = self._folder.left()
        return int(left["proxy"]) if left.get("proxy") and is_same_process(left["proxy"], left["proxy_start"]) else 0

    def _reopen(self) -> None:
        if self._pid:
            self._door.reopen(self._pid)

    def _tell(self) -> None:
        own, proxy = read_process(os.getpid()), read_process(self._pid)
        document = {
            "schema": 1,
            "pid": os.getpid(),
            "start": own.start_ticks if own else 0,
            "proxy": self._pid,
            "proxy_start": proxy.start_ticks if proxy else 0,
            "routes": {one.service: {"port": one.port, "target": one.target} for one in self._routes or ()},
            "at": unix_s(),
        }
        write_atomically(self._folder.root / "keeper.json", json.dumps(document), durable=False)
        self._told_at = monotonic()

    # Requests that wait

    async def _held(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one question of the proxy once the service has a target, or cannot have one."""
        try:
            line = await reader.readline()
            while (await reader.readline()).strip():
                pass
            name = line.split()[1].decode().strip("/") if len(line.split()) > 1 else ""
            gone = asyncio.ensure_future(reader.read(1))
            found = asyncio.ensure_future(self._target(name))
            await asyncio.wait({gone, found}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not found.done():  # whoever asked has gone
                found.cancel()
                return
            target = found.result()
            head = f"204 No Content\r\nX-Cordee-Target: {target}" if target else "503 Service Unavailable"
            writer.write(f"HTTP/1.0 {head}\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (OSError, UnicodeDecodeError):
            return
        finally:
            writer.close()

    async def _target(self, name: str) -> str:
        """Wait until a service can be asked, and return where; empty: it will not by itself."""
        while True:
            route = self._named(name)
            if route is None:
                return ""
            # One that has just refused a connection is no target.
            if route.target and await _listens(route.target):
                return route.target
            if not route.target and not await self._comes(name):
                return ""
            news = self._news
            try:
                await asyncio.wait_for(news.wait(), 1.0)
            except TimeoutError:
                continue

    def _named(self, name: str) -> DoorRoute | None:
        return next((one for one in self._routes or () if one.service == name), None)

    async def _comes(self, name: str) -> bool:
        """Return whether a service without a target will have one; one that nobody used is woken."""
        folder = ServiceFolder(self._folder.root.parent / name)
        now = await self._in_thread(partial(status_of, folder))
        if not now.over or name in self._busy or hand_over_is_open(folder.record()):
            return True
        if not now.asleep or monotonic() < self._not_before.get(name, 0.0):
            return False
        self._do(name, partial(_wake, folder))
        return True

    # What takes long

    def _hand_over_if_due(self, folder: ServiceFolder, record: dict[str, Any]) -> None:
        if (
            folder.name not in self._busy
            and monotonic() > self._not_before.get(folder.name, 0.0)
            and due_handover(folder, record)
        ):
            self._loop.call_soon_threadsafe(self._do, folder.name, partial(hand_over, folder))

    def _do(self, name: str, work: Callable[[], object]) -> None:
        if name in self._busy:
            return

        async def done() -> None:
            try:
                await self._in_thread(work)
            except CordeeError as error:
                self._not_before[name] = monotonic() + _PAUSE_S
                say(f"cordee door: {name}: {error}")
            finally:
                del self._busy[name]

        self._busy[name] = asyncio.ensure_future(done())

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        self._loop = asyncio.get_running_loop()
        return await self._loop.run_in_executor(self._pool, work)


def _settle(folder: ServiceFolder) -> None:
    """End what is left of a hand-over, if whose command it was is gone."""
    with contextlib.suppress(ServiceError), changing(folder):
        pass


def _wake(folder: ServiceFolder) -> None:
    with changing(folder):
        if status_of(folder).over:
            start(folder, folder.blueprint(), wish_of(folder.record()), "woken by a request")


async def _listens(target: str) -> bool:
    host, _, port = target.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 2.0)
    except (TimeoutError, OSError):
        return False
    writer.close()
    return True


async def _main(folder: DoorFolder) -> int:
    keeper = DoorKeeper(folder)
    return await keeper.serve()


def main() -> int:
    """Keep the door of a folder."""
    folder = DoorFolder(Path(sys.argv[1]))
    os.environ["CORDEE_SERVICES"] = str(folder.root.parent)
    try:
        return asyncio.run(_main(folder))
    except CordeeError as error:
        say(f"cordee door: {error}")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
