"""Which peers data waits for: as the kernel tells it of real connections, and as it may tell it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from cordee.systems.explain.node.slow_links import PeerConnection, SlowLinks
from cordee.wire.messages import SlowLink


@pytest.fixture
def links() -> Iterator[SlowLinks]:
    with closing(SlowLinks(loopback=True)) as made:
        yield made


@pytest.fixture
def filled() -> Iterator[tuple[socket.socket, int]]:
    """A connection to 127.0.0.2 whose peer reads nothing, and how much its kernel still holds of what was written."""
    with socket.create_server(("127.0.0.2", 0)) as server, socket.socket() as client:
        client.bind(("127.0.0.1", 0))
        client.connect(server.getsockname())
        peer, _ = server.accept()
        with peer:
            client.setblocking(False)
            written = 0
            while True:
                try:
                    written += client.send(bytes(1 << 16))
                except BlockingIOError:
                    break
            yield client, written


def of(links: SlowLinks, address: str) -> list[SlowLink]:
    return [link for link in links.taken() if link.address == address]


def test_what_a_peer_does_not_take_is_queued_for_it(links: SlowLinks, filled: tuple[socket.socket, int]):
    links.look(100.0)
    (link,) = of(links, "127.0.0.2")
    assert 0 < link.queued_bytes <= filled[1]
    assert of(links, "127.0.0.2") == [], "another window has begun"
    links.look(100.5)
    assert of(links, "127.0.0.2") == [], "the next look is not due yet"
    links.look(200.0)
    assert len(of(links, "127.0.0.2")) == 1


def test_what_stays_on_the_node_is_not_told_of(filled: tuple[socket.socket, int]):
    with closing(SlowLinks()) as links:
        links.look(100.0)
        assert [link for link in links.taken() if link.address.startswith("127.")] == []


def test_connections_of_other_users_are_not_told_of(
    links: SlowLinks, filled: tuple[socket.socket, int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    links.look(100.0)
    assert links.taken() == ()


def test_repeats_are_counted_from_the_first_look_on_and_by_connection(links: SlowLinks, monkeypatch):
    told: list[list[PeerConnection]] = [
        [PeerConnection((1, 1), "10.0.0.2", 0, 70)],
        [PeerConnection((1, 1), "10.0.0.2", 0, 75), PeerConnection((2, 9), "10.0.0.2", 500, 2)],
        [
            PeerConnection((1, 2), "10.0.0.2", 100, 3),
            PeerConnection((2, 9), "10.0.0.2", 400, 2),
            PeerConnection((3, 1), "::2", 9, 0),
        ],
        [],
    ]
    monkeypatch.setattr(links, "_connections", lambda: iter(told.pop(0)))
    links.look(100.0)
    assert links.taken() == ()
    links.look(110.0)
    links.look(120.0)
    assert links.taken() == (SlowLink("10.0.0.2", 500, 10), SlowLink("::2", 9, 0))
    links.look(130.0)
    assert links.taken() == ()


def test_only_the_worst_are_told_of(links: SlowLinks, monkeypatch):
    many = [PeerConnection((at, 1), f"10.0.1.{at}", at, 0) for at in range(1, 100)]
    monkeypatch.setattr(links, "_connections", lambda: iter(many))
    links.look(100.0)
    assert [link.queued_bytes for link in links.taken()] == list(range(99, 67, -1))


@pytest.mark.parametrize("error", [PermissionError, ValueError, socket.timeout])
def test_a_kernel_that_does_not_tell_is_asked_once(links: SlowLinks, monkeypatch, error):
    asked = []

    def refuse() -> Iterator[PeerConnection]:
        asked.append(1)
        raise error

    monkeypatch.setattr(links, "_connections", refuse)
    for now in (100.0, 110.0, 120.0):
        links.look(now)
    assert (len(asked), links.taken()) == (1, ())
