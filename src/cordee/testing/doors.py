"""The contract of front doors: a proxy that can be one passes `DoorContract`, with one fixture `door_class`.

```python
class TestMine(DoorContract):
    @pytest.fixture
    def door_class(self):
        return MyDoor
```
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.core.clock import monotonic
from cordee.systems.services.door._base import PROXY_HEADER, Door, DoorRoute, DoorSettings
from cordee.wire.ports import pick_port

PROXY_SECRET = "p" * 40
_WAIT_S = 20.0
# Workers of before may answer a moment longer.


class _Handler(socketserver.StreamRequestHandler):
    """`/echo` answers the body, `/headers` those of the request, `/stream` one line for each `let_go`, `/drop` breaks off, an upgrade echoes lines."""

    def handle(self) -> None:
        upstream: Upstream = self.server.upstream  # type: ignore[attr-defined]
        words = self.rfile.readline().decode().split()
        headers: dict[str, str] = {}
        while line := self.rfile.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if len(words) < 2:
            return
        body = self.rfile.read(int(headers.get("content-length", 0)))
        upstream.asked.append(words[1])
        if headers.get("upgrade"):
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\n")
            while data := self.rfile.readline():
                self.wfile.write(upstream.name + b" " + data)
        elif words[1] == "/stream":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for number in range(3):
                upstream.let_go.acquire(timeout=_WAIT_S)
                data = b"%s %d\n" % (upstream.name, number)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        elif words[1] == "/headers":
            said = json.dumps(headers).encode()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
        elif words[1] != "/drop":
            said = upstream.name + b" " + body
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))


class _Patient(socketserver.ThreadingMixIn):
    """Many may come at once; who hangs up, as clients of a proxy that is killed do, is no error of the server."""

    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[misc]


class _Server(_Patient, socketserver.TCPServer):
    allow_reuse_address = True


class Upstream:
    """A service behind a door.

    Attributes:
        asked: the paths of all requests that came.
        let_go: a stream's line goes on when it is released.
        target: its address and port.
    """

    def __init__(self, name: bytes, port: int = 0) -> None:
        self.name, self.asked, self.let_go = name, list[str](), threading.Semaphore(0)
        self._server = _Server(("127.0.0.1", port or pick_port("127.0.0.1")), _Handler)
        self._server.upstream = self  # type: ignore[attr-defined]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.target = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


class _Hold(_Patient, socketserver.UnixStreamServer):
    pass


class _Keeper(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        opened: OpenDoor = self.server.opened  # type: ignore[attr-defined]
        opened.waiting.release()
        opened.comes.wait(_WAIT_S)
        head = f"204 No Content\r\nX-Cordee-Target: {opened.target}" if opened.target else "503 Service Unavailable"
        self.wfile.write(f"HTTP/1.0 {head}\r\n\r\n".encode())


class OpenDoor:
    """A door that runs, with the keeper's part played: `comes` is set when `target` can be asked.

    Attributes:
        port: where it listens for the service `echo`.
        waiting: released once for each request that waits.
    """

    def __init__(
        self,
        door_class: type[Door],
        folder: Path,
        certificate: str = "",
        key: str = "",
        user_header: str = "",
        **limits: Any,
    ) -> None:
        self.folder, self.comes, self.waiting, self.target = folder, threading.Event(), threading.Semaphore(0), ""
        self.port = pick_port("127.0.0.1")
        hold = folder / "hold.sock"
        self._hold = _Hold(str(hold), _Keeper)
        self._hold.opened = self  # type: ignore[attr-defined]
        threading.Thread(target=self._hold.serve_forever, args=(0.05,), daemon=True).start()
        self._limits = limits
        self._door = door_class(
            folder, DoorSettings("127.0.0.1", hold, 30.0, 60.0, certificate, key, user_header, PROXY_SECRET)
        )
        self._door.write([self._route("")])
        self._process = subprocess.Popen(self._door.argv(), stdin=subprocess.DEVNULL)
        until = monotonic() + _WAIT_S
        while socket.socket().connect_ex(("127.0.0.1", self.port)) and monotonic() < until:
            time.sleep(0.02)

    def _route(self, target: str) -> DoorRoute:
        return DoorRoute("echo", self.port, target, **self._limits)

    def lead_to(self, upstream: Upstream | None) -> None:
        """Have the door lead there, and wait until it does; None: requests wait."""
        self._door.write([self._route(upstream.target if upstream else "")])
        until = monotonic() + _WAIT_S
        while not self._door.reload(self._process.pid) and monotonic() < until:
            time.sleep(0.02)
        while not self._door.follows(self._process.pid) and monotonic() < until:
            time.sleep(0.02)

    def connect(self, timeout_s: float = _WAIT_S) -> http.client.HTTPConnection:
        """Return a connection to the door."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        timeout_s: float = _WAIT_S,
    ) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        connection = self.connect(timeout_s)
        try:
            connection.request(method, path, body or None, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def close(self) -> None:
        """Close it."""
        self._process.terminate()
        self._process.wait(_WAIT_S)
        self._hold.shutdown()
        self._hold.server_close()


class DoorContract:
    """What every door does."""

    @pytest.fixture
    def door_class(self) -> type[Door]:
        """Return the class of the door."""
        raise NotImplementedError("give the class of the door")

    @pytest.fixture
    def upstreams(self) -> Iterator[list[Upstream]]:
        """Return two services."""
        made = [Upstream(b"one"), Upstream(b"two")]
        yield made
        for one in made:
            one.close()

    @pytest.fixture
    def opened(self, door_class: type[Door]) -> Iterator[Any]:
        """Return a function that opens a door, with limits of its route."""
        doors: list[OpenDoor] = []
        with tempfile.TemporaryDirectory(prefix="door-") as place:

            def make(**about: Any) -> OpenDoor:
                folder = Path(place) / str(len(doors))
                folder.mkdir()
                doors.append(OpenDoor(door_class, folder, **about))
                return doors[-1]

            yield make
            for one in doors:
                one.close()

    def test_bodies_pass_both_ways(self, opened: Any, upstreams: list[Upstream]) -> None:
        door = opened()
        door.lead_to(upstreams[0])
        body = os.urandom(2_000_000)
        assert door.ask("/echo", "POST", body) == (200, b"one " + body)

    def test_once_it_follows_nothing_goes_where_it_led_before(self, opened: Any, upstreams: list[Upstream]) -> None:
        door = opened()
        for turn in range(10):
            here = upstreams[turn % 2]
            door.lead_to(here)
            assert [door.ask("/echo") for _ in range(20)] == [(200, here.name + b" ")] * 20

    def test_a_stream_passes_as_it_comes_and_lives_through_a_change_of_routes(
        self, opened: Any, upstreams: list[Upstream]
    ) -> None:
        door, (one, two) = opened(), upstreams
        door.lead_to(one)
        connection = door.connect()
        connection.request("GET", "/stream")
        one.let_go.release()
        answer = connection.getresponse()
        assert answer.readline() == b"one 0\n"
        door.lead_to(two)
        assert door.ask("/echo") == (200, b"two ")
        one.let_go.release()
        assert answer.readline() == b"one 1\n"
        one.let_go.release()
        assert answer.read() == b"one 2\n"

    def test_a_websocket_passes_and_lives_through_a_change_of_routes(
        self, opened: Any, upstreams: list[Upstream]
    ) -> None:
        door = opened()
        door.lead_to(upstreams[0])
        with socket.create_connection(("127.0.0.1", door.port), _WAIT_S) as link, link.makefile("rwb") as lines:
            lines.write(b"GET /ws HTTP/1.1\r\nHost: echo\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
            lines.flush()
            assert b"101" in lines.readline()
            while lines.readline().strip():
                pass
            for word in (b"a\n", b"b\n"):
                lines.write(word)
                lines.flush()
                assert lines.readline() == b"one " + word
                door.lead_to(upstreams[1])

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_a_request_that_the_service_has_seen_is_never_sent_again(
        self, opened: Any, upstreams: list[Upstream], method: str
    ) -> None:
        door, one = opened(), upstreams[0]
        door.lead_to(one)
        door.comes.set()
        door.target = upstreams[1].target
        assert door.ask("/drop", method)[0] == 502
        assert one.asked.count("/drop") == 1
        assert "/drop" not in upstreams[1].asked

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_a_request_waits_for_a_service_that_comes(
        self, opened: Any, upstreams: list[Upstream], method: str
    ) -> None:
        door = opened()
        self._waits(door, upstreams[1], method)

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_a_request_waits_where_nobody_listens_any_more(
        self, opened: Any, upstreams: list[Upstream], method: str
    ) -> None:
        door, gone = opened(), Upstream(b"gone")
        door.lead_to(gone)
        gone.close()
        self._waits(door, upstreams[1], method)

    def _waits(self, door: OpenDoor, upstream: Upstream, method: str) -> None:
        found: list[tuple[int, bytes]] = []
        body = b"body" if method == "POST" else b""
        asking = threading.Thread(target=lambda: found.append(door.ask("/echo", method, body)))
        while door.waiting.acquire(blocking=False):
            continue
        asking.start()
        assert door.waiting.acquire(timeout=_WAIT_S)
        assert found == []
        door.target = upstream.target
        door.comes.set()
        asking.join(_WAIT_S)
        assert found == [(200, upstream.name + b" " + body)]

    def test_a_request_for_a_service_that_does_not_come_is_told_so(self, opened: Any) -> None:
        door = opened()
        door.comes.set()
        status, said = door.ask("/echo")
        assert status == 503
        assert b"cordee service status echo" in said

    def test_a_door_with_a_token_lets_in_whoever_has_it(self, opened: Any, upstreams: list[Upstream]) -> None:
        door = opened(token="s" * 40)
        door.lead_to(upstreams[0])
        asked = len(upstreams[0].asked)
        assert door.ask("/echo")[0] == 401
        assert door.ask("/echo", headers={"Authorization": "Bearer x"})[0] == 401
        assert door.ask("/echo", headers={"Cookie": "cordee_token=" + "x" * 40})[0] == 401
        assert len(upstreams[0].asked) == asked
        assert door.ask("/echo", headers={"Authorization": "Bearer " + "s" * 40})[0] == 200
        assert door.ask("/echo", headers={"Cookie": "cordee_token=" + "s" * 40})[0] == 200
        assert door.ask("/echo?token=" + "s" * 40)[0] == 303

    def test_whom_the_proxy_in_front_vouches_for_comes_in_and_nobody_else_says_so(
        self, opened: Any, upstreams: list[Upstream]
    ) -> None:
        door = opened(user_header="X-Forwarded-User", token="s" * 40, users=("anna",), credentials="Bearer own")
        door.lead_to(upstreams[0])
        proxy = {PROXY_HEADER: PROXY_SECRET}
        status, said = door.ask("/headers", headers={**proxy, "X-Forwarded-User": "anna"})
        assert status == 200
        got = json.loads(said)
        assert got["x-forwarded-user"] == "anna"
        assert got["authorization"] == "Bearer own"
        assert PROXY_SECRET not in said.decode()
        for wrong in (
            {**proxy, "X-Forwarded-User": "ben"},
            {**proxy, "X-Forwarded-User": "Anna"},
            {**proxy, "X-Forwarded-User": 'anna"; x'},
            {"X-Forwarded-User": "anna"},
            {PROXY_HEADER: "P" * 40, "X-Forwarded-User": "anna"},
            {PROXY_HEADER: "p" * 39, "X-Forwarded-User": "anna"},
            {PROXY_HEADER: PROXY_SECRET},
        ):
            assert door.ask("/headers", headers=wrong)[0] == 401, wrong
        key = {"Authorization": "Bearer " + "s" * 40}
        got = json.loads(door.ask("/headers", headers={**key, "X-Forwarded-User": "anna"})[1])
        assert "x-forwarded-user" not in got, "a name that nobody vouches for comes to no service"
        assert got["authorization"] == key["Authorization"]

    def test_quotas_and_the_log_are_of_whom_the_proxy_in_front_names(
        self, opened: Any, upstreams: list[Upstream]
    ) -> None:
        door = opened(user_header="X-Forwarded-User", users=("anna", "ben"), requests_per_s=1.0)
        door.lead_to(upstreams[0])

        def ask(user: str) -> int:
            return int(door.ask("/echo", headers={PROXY_HEADER: PROXY_SECRET, "X-Forwarded-User": user})[0])

        assert 429 in [ask("anna") for _ in range(5)]
        assert ask("ben") == 200
        until = monotonic() + _WAIT_S
        log = door.folder / "access.log"
        while '"user":"ben"' not in log.read_text():
            assert monotonic() < until
            time.sleep(0.02)
        assert '"user":"anna"' in log.read_text()

    def test_each_request_is_logged_without_credentials(self, opened: Any, upstreams: list[Upstream]) -> None:
        door = opened(token="s" * 40)
        door.lead_to(upstreams[0])
        door.ask("/echo?token=" + "s" * 40, headers={"Authorization": "Bearer " + "s" * 40})
        until = monotonic() + _WAIT_S
        log = door.folder / "access.log"
        while not log.exists() or '"status":303' not in log.read_text():
            assert monotonic() < until
            time.sleep(0.02)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert set(lines[-1]) == {"at", "service", "user", "status", "sent", "received", "seconds"}
        assert lines[-1]["service"] == "echo"
        assert "s" * 40 not in log.read_text()

    def test_a_client_that_asks_too_often_or_too_much_is_refused(self, opened: Any, upstreams: list[Upstream]) -> None:
        door = opened(requests_per_s=20.0, body_bytes=1000)
        door.lead_to(upstreams[0])
        found = [door.ask("/echo")[0] for _ in range(60)]
        assert 429 in found
        other = {"Authorization": "Bearer other"}
        assert door.ask("/echo", headers=other)[0] == 200
        assert door.ask("/echo", "POST", b"x" * 2000, {"Authorization": "Bearer third"})[0] == 413
