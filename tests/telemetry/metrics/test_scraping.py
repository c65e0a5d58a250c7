"""Endpoints that answer, and all the ways in which they do not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cordee.telemetry.node.metrics.scraping import ScrapeError, Scraping, _endpoints, fetch
from cordee.testing.patience import wait_until
from cordee.wire.ports import bind

Serve = Callable[..., str]
HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answer every connection with what a function writes; returns the URL."""
    listening: list[socket.socket] = []

    def begin(answer: Callable[[socket.socket], None], requests: list[bytes] | None = None) -> str:
        listener = bind("127.0.0.1", None)
        listener.listen()
        listening.append(listener)

        def one(connection: socket.socket) -> None:
            with connection:
                try:
                    request = connection.recv(4096)
                    if requests is not None:
                        requests.append(request)
                    answer(connection)
                except OSError:
                    return

        def loop() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=[connection], daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"

    yield begin
    for listener in listening:
        listener.close()


until = wait_until


def says(data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(data)


def drip(connection: socket.socket) -> None:
    connection.sendall(HEAD)
    while True:
        connection.sendall(b"x 1\n")
        time.sleep(0.01)


def drip_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"y")
        time.sleep(0.01)


def flood(connection: socket.socket) -> None:
    connection.sendall(HEAD)
    for _ in range(1 << 14):
        connection.sendall(b"x" * (1 << 16))  # a gigabyte, if anyone took it


def silence(connection: socket.socket) -> None:
    while connection.recv(4096):
        continue


def test_an_answer_is_read_whole(serve: Serve) -> None:
    assert fetch(serve(says(HEAD + b"x 1\n"))) == "x 1\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nx 1\n\r\n0\r\n\r\n"
    assert fetch(serve(says(chunked))) == "x 1\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (silence, "no whole answer within 0.3 s"),
        (drip, "no whole answer within 0.3 s"),
        (drip_head, "no whole answer within 0.3 s"),
        (flood, "more than 1 MiB"),
        (says(b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"), "it answers 500 Broken"),
        (says(b"HTTP/1.1 302 Elsewhere\r\nLocation: http://10.0.0.1/\r\n\r\n"), "it answers 302 Elsewhere"),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "SSH-2.0"),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx"), "99 bytes too early"),
        (says(b""), "closed connection"),
    ],
)
def test_what_is_no_answer_is_an_error_with_words(
    serve: Serve, answer: Callable[[socket.socket], None], why: str
) -> None:
    timeout_s = 0.3 if "0.3" in why else 30.0
    with pytest.raises(ScrapeError, match=why):
        fetch(serve(answer), timeout_s, 1 << 20)


def test_nothing_that_listens_is_said_in_words() -> None:
    with bind("127.0.0.1", None) as taken, pytest.raises(ScrapeError, match="nothing listens there"):
        fetch(f"http://127.0.0.1:{taken.getsockname()[1]}/metrics")


def asked(url: str, **more: object) -> dict[str, object]:
    return {"url": url, "port": None, "every_s": 0.02, "per": "node", "metrics": (), **more}


class Taken:
    """What was read, by rank."""

    def __init__(self) -> None:
        self.by_rank: dict[int, set[float]] = {}

    def __call__(self, rank: int, attempt: int, moment: float, values: list) -> None:
        self.by_rank.setdefault(rank, set()).update(value.value for value in values)


RANKS = {4: {"local_rank": 0, "attempt": 1}, 5: {"local_rank": 1, "attempt": 1}}


def test_a_node_is_read_once_and_its_values_are_its_first_ranks(serve: Serve) -> None:
    taken = Taken()
    scraping = Scraping([asked(serve(says(HEAD + b"x 1\n")))], taken)
    until(lambda: scraping.turn(RANKS) or taken.by_rank)
    assert taken.by_rank == {4: {1.0}}


def test_every_rank_is_read_at_its_own_place(serve: Serve) -> None:
    asked_for: list[bytes] = []
    url = serve(says(HEAD + b"x 1\n"), asked_for)
    port = int(url.rpartition(":")[2].partition("/")[0])
    taken = Taken()
    per_rank = asked("http://127.0.0.1:{port}/{rank}/{local_rank}", port=port, per="rank")
    scraping = Scraping([per_rank], taken)
    until(lambda: scraping.turn({4: RANKS[4]}) or taken.by_rank)
    assert asked_for[0].startswith(b"GET /4/0 HTTP/1.1\r\n")
    until(lambda: scraping.turn({4: RANKS[4], 6: {"local_rank": 0, "attempt": 1}}) or len(taken.by_rank) == 2)
    assert any(request.startswith(b"GET /6/0 ") for request in asked_for)


def test_the_port_rises_with_the_local_rank() -> None:
    entry = asked("http://127.0.0.1:{port}/metrics", port=8000, per="rank")
    found = [key for key, _ in _endpoints(entry, RANKS)]
    assert found == [("http://127.0.0.1:8000/metrics", 4, 1), ("http://127.0.0.1:8001/metrics", 5, 1)]


def test_a_failure_is_told_after_some_patience_and_withdrawn_when_it_is_over(serve: Serve) -> None:
    answers = [b"<html>no</html>\n"]
    url = serve(lambda connection: connection.sendall(HEAD + answers[0]))
    taken: list[object] = []
    scraping = Scraping([asked(url)], lambda *found: taken.append(found), patience_s=0.05)
    ranks = {0: {"local_rank": 0, "attempt": 1}}
    until(lambda: scraping.turn(ranks) or scraping.missing())
    assert scraping.missing() == {url: "it answers with what is no Prometheus text"}
    answers[0] = b"x 1\n"
    until(lambda: scraping.turn(ranks) or not scraping.missing())
    until(lambda: taken)


def test_an_endpoint_that_does_not_answer_holds_up_no_other(serve: Serve) -> None:
    taken: list[object] = []
    scraping = Scraping(
        [asked(serve(silence)), asked(serve(says(HEAD + b"x 1\n")))], lambda *found: taken.append(found)
    )
    until(lambda: scraping.turn({0: {"local_rank": 0, "attempt": 1}}) or len(taken) > 3)


def test_without_ranks_nothing_is_asked(serve: Serve) -> None:
    connections: list[object] = []
    scraping = Scraping([asked(serve(connections.append))], lambda *found: None)
    scraping.turn({})
    assert scraping.missing() == {}
    assert connections == []
