"""A server stays open to its users whatever strangers do with its port."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from cordee.core.web import http_server
from cordee.core.web.http_server import Waiting, listen, make_server

PATIENCE_S = 30.0
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what was sent."""
    if scope["type"] == "lifespan":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(**options: Any) -> Iterator[int]:
    """Serve in a thread; gives the port."""
    listener, ready = listen("127.0.0.1", 0), threading.Event()
    port = listener.getsockname()[1]
    server = make_server(echo, ready.set, **options)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def asked(port: int) -> int:
    """Return the status of an answer on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("POST", "/", b"x" * 100_000)
    answer = connection.getresponse()
    assert len(answer.read()) == 100_000
    connection.close()
    return answer.status


def test_who_connects_and_asks_nothing_is_left_and_single_bytes_prolong_nothing() -> None:
    with serving(request_s=0.3) as port, connected(port) as silent, connected(port) as slow:
        slow.sendall(REQUEST[:20])
        ended = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < ended:
                slow.sendall(b"a")
        except OSError:
            pass
        assert time.monotonic() < ended
        with pytest.raises(ConnectionResetError):
            if silent.recv(1) == b"":
                raise ConnectionResetError
        assert asked(port) == 200


def test_a_connection_that_was_answered_may_ask_again() -> None:
    with serving(request_s=0.3) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        for _ in range(3):
            connection.request("GET", "/")
            assert connection.getresponse().read() == b""
            held = connection.sock
        assert held is connection.sock
        connection.close()
        with connected(port) as pipelined:
            pipelined.sendall(REQUEST * 3)
            answers = b""
            while answers.count(b"200 OK") < 3:
                answers += pipelined.recv(4096)


def test_more_silent_connections_than_are_held_lock_nobody_out() -> None:
    with ExitStack() as held, serving(most_waiting=20, request_s=PATIENCE_S) as port:
        silent = [held.enter_context(connected(port)) for _ in range(100)]
        assert asked(port) == 200
        gone = [one for one in silent if closed(one)]
        assert gone
        assert closed(silent[0])


def closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


class Connection:
    """A connection that only knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def abort(self) -> None:
        self.closed = True


def held(waiting: Waiting, ends: Any) -> Connection:
    connection = Connection()
    waiting.add(connection, ends)
    return connection


def test_those_who_hold_the_most_lose_theirs_first_by_user_here_and_by_address_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    users = dict.fromkeys(range(1, 4), 1000)
    monkeypatch.setattr(
        http_server, "socket_owners", lambda wanted: {ends: users.get(ends[0][1], 5000) for ends in wanted}
    )
    here = ("127.0.0.1", 8090)
    waiting = Waiting(40)
    mine = [held(waiting, (("127.0.0.1", port), here)) for port in users]
    other = held(waiting, (("10.0.0.2", 7), here))
    network = [held(waiting, ((f"2001:db8::{number}", 9), here)) for number in range(1, 6)]
    theirs = [held(waiting, (("127.0.0.1", port), here)) for port in range(100, 200)]
    assert not any(one.closed for one in [*mine, other, *network])
    assert sum(not one.closed for one in theirs) <= 40
    assert [one.closed for one in theirs] == sorted((one.closed for one in theirs), reverse=True), "the oldest go first"
    many = [held(waiting, ((f"2001:db8:0:1::{number:x}", 9), here)) for number in range(1, 200)]
    assert not any(one.closed for one in [*mine, other]), "a network counts as one"
    assert any(one.closed for one in many)


HANGING = """
import sys, time
import anyio.to_thread
from cordee.core.web.http_server import listen, make_server, run
async def app(scope, receive, send):
    if scope["type"] == "http":
        print("asked", flush=True)
        await anyio.to_thread.run_sync(time.sleep, 1000)
listener = listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
run(make_server(app), listener)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("real")
def test_a_signal_ends_the_server_though_a_request_hangs(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGING], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            with connected(int(server.stdout.readline())) as asking:
                asking.sendall(REQUEST)
                assert server.stdout.readline() == "asked\n"
                server.send_signal(number)
                assert server.wait(PATIENCE_S) in (-number, 128 + number)
        finally:
            server.kill()
