"""The framed protocol, its handshake and its behaviour towards strangers, over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordee import wire
from cordee.core.errors import WireError
from cordee.testing.patience import PatientWait
from cordee.wire import client, server
from cordee.wire import connection as connecting_end

TOKEN = bytes(range(32))
HOST = "127.0.0.1"


class Hub:
    """A server that remembers what happened and answers {"echo": ...} messages."""

    def __init__(self) -> None:
        self.connections: list[wire.Connection] = []
        self.messages: list[tuple[dict[str, Any], bytes]] = []
        self.ended: list[WireError | None] = []
        self.refusals: list[str] = []
        self.server: wire.Server

    async def __aenter__(self) -> Hub:
        self.server = await wire.serve(
            HOST, None, TOKEN, self._connected, epoch=7, on_refused=lambda address, reason: self.refusals.append(reason)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close("the test ends")
        await asyncio.wait_for(self.server.wait_closed(), 6)

    def _connected(self, connection: wire.Connection) -> None:
        connection.on_message = self._message
        connection.on_close = lambda _, error: self.ended.append(error)
        self.connections.append(connection)

    def _message(self, connection: wire.Connection, message: dict[str, Any], body: bytes) -> None:
        self.messages.append((message, body))
        if "echo" in message:
            connection.send({"answer": message["echo"]}, body)

    async def join(self, name: str = "local-0", port: int | None = None, **more: Any) -> Peer:
        peer = Peer()
        peer.connection = await wire.connect(
            HOST,
            port or self.server.port,
            more.pop("token", TOKEN),
            "agent",
            name,
            epoch=more.pop("epoch", 7),
            on_message=lambda _, message, body: peer.messages.append((message, body)),
            on_close=lambda _, error: peer.ended.append(error),
            **more,
        )
        return peer


class Peer:
    def __init__(self) -> None:
        self.connection: wire.Connection
        self.messages: list[tuple[dict[str, Any], bytes]] = []
        self.ended: list[WireError | None] = []


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    patience = PatientWait(seconds)
    while not condition():
        assert not patience.over(), "what the test waits for did not happen"
        await asyncio.sleep(0.005)


def with_hub(test: Callable[[Hub], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Hub() as hub:
            await test(hub)

    asyncio.run(main())


class Proxy:
    """A man in the middle that may do anything to the frames that go from the client to the server."""

    def __init__(self, port: int, meddle: Callable[[int, bytes], list[bytes]]) -> None:
        self._port = port
        self._meddle = meddle
        self._tasks: list[asyncio.Future[Any]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self._port)
        self._writers += [writer, far_writer]
        self._tasks.append(asyncio.ensure_future(self._forward_frames(reader, far_writer)))
        self._tasks.append(asyncio.ensure_future(self._forward(far_reader, writer)))

    async def _forward_frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = -1
        try:
            while True:
                prefix = await reader.readexactly(4)
                frame = prefix + await reader.readexactly(struct.unpack("<I", prefix)[0])
                for changed in self._meddle(number, frame) if number >= 0 else [frame]:
                    writer.write(changed)
                number += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()


def meddled(meddle: Callable[[int, bytes], list[bytes]], count: int = 4) -> tuple[Hub, WireError | None]:
    """Send `count` messages through a meddling proxy; return the hub and how the server's end ended."""
    result: list[Any] = []

    async def test(hub: Hub) -> None:
        async with Proxy(hub.server.port, meddle) as port:
            peer = await hub.join(port=port)
            for number in range(count):
                peer.connection.send({"number": number}, b"body" * number)
            await until(lambda: hub.ended and peer.ended)
            result.extend([hub, hub.ended[0]])

    with_hub(test)
    return result[0], result[1]


def greeting(document: Any) -> bytes:
    data = json.dumps(document).encode()
    return struct.pack("<I", len(data)) + data


def test_messages_and_bodies_travel_both_ways_in_order() -> None:
    async def test(hub: Hub) -> None:
        peer = await hub.join("local-3")
        for number in range(50):
            assert peer.connection.send({"echo": number, "text": "grüße \ud800"}, bytes([number]) * number)
        await until(lambda: len(peer.messages) == 50)
        assert peer.messages == [({"answer": number}, bytes([number]) * number) for number in range(50)]
        assert hub.messages[1][0]["text"] == "grüße \ud800"
        assert [(c.peer_role, c.peer_name, c.peer_epoch) for c in hub.connections] == [("agent", "local-3", 7)]

    with_hub(test)


def test_a_frame_of_almost_16_MiB_travels_and_a_larger_one_is_refused_before_it_is_sent() -> None:
    async def test(hub: Hub) -> None:
        peer = await hub.join()
        body = bytes(16 * 1024 * 1024 - 64)
        with pytest.raises(WireError, match="too large"):
            peer.connection.send({}, body + bytes(64))
        peer.connection.send({"echo": 1}, body)
        assert peer.connection.buffered_bytes > 0
        await peer.connection.drain()
        await until(lambda: peer.messages)
        assert peer.messages == [({"answer": 1}, body)]

    with_hub(test)


def test_closing_sends_what_is_queued_and_both_ends_hear_of_no_error() -> None:
    async def test(hub: Hub) -> None:
        peer = await hub.join()
        body = bytes(4 << 20)
        peer.connection.send({"last": True}, body)
        peer.connection.close("done")
        assert not peer.connection.send({"too": "late"})
        await asyncio.wait_for(peer.connection.wait_closed(), 4)
        await until(lambda: hub.ended)
        assert hub.messages == [({"last": True}, body)]
        assert (hub.ended, peer.ended) == ([None], [None])
        assert hub.connections[0].close_reason == "done"

    with_hub(test)


def test_a_message_that_comes_with_the_handshake_waits_until_connect_has_returned() -> None:
    async def test(hub: Hub) -> None:
        first = hub._connected

        def connected(connection: wire.Connection) -> None:
            first(connection)
            connection.send({"at": "once"})

        hub.server.on_connect = connected
        known: list[wire.Connection] = []
        seen: list[bool] = []
        known.append(
            await wire.connect(
                HOST,
                hub.server.port,
                TOKEN,
                "client",
                "c",
                epoch=7,
                on_message=lambda connection, *_: seen.append(connection in known),
                on_close=lambda *_: None,
            )
        )
        await until(lambda: seen)
        assert seen == [True]

    with_hub(test)


def test_a_wrong_token_is_refused_counted_and_not_explained() -> None:
    async def test(hub: Hub) -> None:
        with pytest.raises(WireError, match="does not know the token"):
            await hub.join(token=bytes(32))
        await until(lambda: hub.refusals)
        assert sum(hub.server.refused.values()) == 1
        assert not hub.connections
        await hub.join()

    with_hub(test)


def test_a_server_that_does_not_know_the_token_is_not_believed() -> None:
    async def test(hub: Hub) -> None:
        async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(greeting({"cordee": 1, "nonce": "ab" * 16}))
            await reader.read(4096)
            writer.write(greeting({"proof": "00" * 32}))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(impostor, HOST, 0)
        with pytest.raises(WireError, match="server does not know the token"):
            await hub.join(port=server.sockets[0].getsockname()[1])
        server.close()

    with_hub(test)


def test_a_proof_cannot_be_reflected_to_the_one_who_made_it() -> None:
    async def test(hub: Hub) -> None:
        async def mirror(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(greeting({"cordee": 1, "nonce": "ab" * 16}))
            answer = json.loads((await reader.read(4096))[4:])
            writer.write(greeting({"proof": answer["proof"]}))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(mirror, HOST, 0)
        with pytest.raises(WireError, match="server does not know the token"):
            await hub.join(port=server.sockets[0].getsockname()[1])
        server.close()

    with_hub(test)


def test_the_token_never_travels() -> None:
    seen: list[bytes] = []

    def watch(number: int, frame: bytes) -> list[bytes]:
        seen.append(frame)
        return [frame]

    async def test(hub: Hub) -> None:
        async with Proxy(hub.server.port, watch) as port:
            peer = await hub.join(port=port)
            peer.connection.send({"echo": 1})
            await until(lambda: peer.messages)

    with_hub(test)
    assert seen
    assert all(TOKEN not in frame and TOKEN.hex().encode() not in frame for frame in seen)


def test_another_epoch_is_refused_by_name() -> None:
    async def test(hub: Hub) -> None:
        with pytest.raises(WireError, match=r"epoch 6 is not served here; the epoch is now 7"):
            await hub.join(epoch=6)

    with_hub(test)


def test_another_protocol_version_is_refused_by_both_ends_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(hub: Hub) -> None:
        monkeypatch.setattr(client, "PROTOCOL", 2)
        with pytest.raises(WireError, match="protocol 1, this end"):
            await hub.join()
        await until(lambda: hub.refusals)
        assert hub.refusals == ["the peer speaks protocol 2, this end speaks protocol 1"]

    with_hub(test)


@pytest.mark.parametrize(
    ("meddle", "cause", "arrived"),
    [
        (lambda n, frame: [frame, frame] if n == 1 else [frame], r"frame 1 was replayed \(expected frame 2\)", 2),
        (
            lambda n, frame: [] if n == 1 else [frame],
            r"frame 2 came before those that precede it \(expected frame 1\)",
            1,
        ),
        (lambda n, frame: [frame[:20] + bytes([frame[20] ^ 1]) + frame[21:]], r"frame 0 was changed", 0),
        (lambda n, frame: [frame[:-1] + bytes([frame[-1] ^ 128])], r"frame 0 was changed", 0),
        (lambda n, frame: [frame[:4] + b"\xff" + frame[5:]], r"frame 0 was changed", 0),
        (lambda n, frame: [b"\xff\xff\xff\x7f" + frame[4:]], r"too large", 0),
        (lambda n, frame: [b"\x03\x00\x00\x00abc"], r"too short", 0),
        (lambda n, frame: [b"\x00\x00\x00\x00"], r"too short", 0),
    ],
    ids=["replayed", "dropped", "bit flipped", "seal flipped", "header length", "oversized", "tiny", "empty"],
)
def test_a_meddled_frame_ends_the_connection_and_the_cause_is_named(
    meddle: Callable[[int, bytes], list[bytes]], cause: str, arrived: int
) -> None:
    hub, error = meddled(meddle)
    assert error is not None
    assert re.search(cause, str(error)), str(error)
    assert [message["number"] for message, _ in hub.messages] == list(range(arrived))


def test_swapped_frames_end_the_connection() -> None:
    kept: list[bytes] = []

    def swap(number: int, frame: bytes) -> list[bytes]:
        if number == 1:
            kept.append(frame)
            return []
        return [frame, *kept] if number == 2 else [frame]

    hub, error = meddled(swap)
    assert error is not None
    assert "came before" in str(error)
    assert len(hub.messages) == 1


def test_a_frame_of_one_connection_is_worthless_on_another() -> None:
    async def test(hub: Hub) -> None:
        kept: list[bytes] = []
        async with Proxy(hub.server.port, lambda n, frame: kept.append(frame) or [frame]) as port:
            peer = await hub.join(port=port)
            peer.connection.send({"number": 1})
            await until(lambda: len(hub.messages) == 1)
        async with Proxy(hub.server.port, lambda n, frame: [kept[0]]) as port:
            other = await hub.join(port=port)
            other.connection.send({"number": 2})
            await until(lambda: other.ended)
        assert [message["number"] for message, _ in hub.messages] == [1]
        assert "was changed" in str(hub.ended[-1])

    with_hub(test)


def test_a_frame_cut_short_is_told_from_a_goodbye() -> None:
    async def test(hub: Hub) -> None:
        async def cut(hub: Hub) -> None:
            peer = await hub.join()
            peer.connection._transport.write(struct.pack("<I", 100) + b"half")
            peer.connection._transport.write_eof()

        await cut(hub)
        await until(lambda: hub.ended)
        assert "went away in the middle of a frame" in str(hub.ended[0])

    with_hub(test)


def test_an_end_that_vanishes_is_an_error_that_names_it() -> None:
    async def test(hub: Hub) -> None:
        peer = await hub.join("local-9")
        peer.connection._transport.abort()
        await until(lambda: hub.ended)
        assert "agent local-9" in str(hub.ended[0])

    with_hub(test)


@pytest.mark.parametrize("header", [b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 100_000, b"", b'["goodbye"]'])
def test_a_header_that_is_no_JSON_object_ends_the_connection(header: bytes) -> None:
    async def test(hub: Hub) -> None:
        peer = await hub.join()
        connection = peer.connection
        frame = struct.pack("<II", 4 + len(header) + 16, len(header)) + header
        digest = connection._seal.copy()
        digest.update(bytes(8) + frame)
        connection._transport.write(frame + digest.digest())
        await until(lambda: hub.ended)
        assert "header is not" in str(hub.ended[0])
        assert not hub.messages

    with_hub(test)


@pytest.mark.parametrize(
    "said",
    [
        struct.pack("<I", 5000),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack("<I", 2) + b"[]",
        struct.pack("<I", 4000) + b"[" * 4000,
        greeting({"cordee": "x" * 3000}),
        greeting({"cordee": 1}),
        greeting({"cordee": 1, "role": ["agent"], "name": {}, "nonce": 5, "epoch": "7", "proof": None}),
        greeting({"cordee": 1, "role": "agent", "name": "n", "nonce": "n", "epoch": 7, "proof": "ü"}),
    ],
)
def test_a_stranger_who_says_something_else_is_cut_off_and_agents_still_connect(said: bytes) -> None:
    async def test(hub: Hub) -> None:
        _, writer = await asyncio.open_connection(HOST, hub.server.port)
        writer.write(said)
        await until(lambda: hub.refusals)
        await hub.join()
        assert not hub.server.strangers
        writer.close()

    with_hub(test)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    st.binary(min_size=1, max_size=300),
    st.sampled_from(["greeting", "framed greeting", "frame"]),
)
def test_random_bytes_never_get_a_message_through(noise: bytes, where: str) -> None:
    async def test(hub: Hub) -> None:
        if where == "frame":
            transport = (await hub.join()).connection._transport
            transport.write(noise)
            transport.write_eof()
            await until(lambda: hub.ended)
            assert hub.ended[0] is not None
        else:
            _, writer = await asyncio.open_connection(HOST, hub.server.port)
            writer.write((struct.pack("<I", len(noise)) if where == "framed greeting" else b"") + noise)
            writer.write_eof()
            await until(lambda: hub.refusals)
            writer.close()
            assert not hub.connections
        assert not hub.messages

    with_hub(test)


def test_silent_strangers_and_slow_talkers_are_dropped_and_delay_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GREETING_S", 0.6)
    monkeypatch.setattr(server, "CROWDED_S", 0.2)

    async def test(hub: Hub) -> None:
        silent = [await asyncio.open_connection(HOST, hub.server.port) for _ in range(100)]
        _, slow = await asyncio.open_connection(HOST, hub.server.port)
        await hub.join()
        hello = iter(greeting({"cordee": 1, "name": "x" * 500}))

        async def drip() -> None:
            for byte in hello:
                slow.write(bytes([byte]))
                await asyncio.sleep(0.02)

        dripping = asyncio.ensure_future(drip())
        await until(lambda: len(hub.server.strangers.get(HOST, ())) <= 64, 60)
        await until(lambda: not hub.server.strangers, 60)
        assert not dripping.done()
        dripping.cancel()
        assert len(hub.refusals) == 101
        assert "in time" in hub.refusals[0]
        for _, writer in silent:
            writer.close()
        slow.close()

    with_hub(test)


def test_strangers_without_number_make_room_for_each_other_and_for_who_knows_the_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MAX_STRANGERS", 10)

    async def test(hub: Hub) -> None:
        silent = [await asyncio.open_connection(HOST, hub.server.port) for _ in range(25)]
        await until(lambda: len(hub.refusals) == 15)
        assert hub.server.refused == {"too many unauthenticated connections": 15}
        await hub.join()
        assert len(hub.connections) == 1
        for _, writer in silent:
            writer.close()

    with_hub(test)


def test_a_peer_that_stops_reading_is_noticed_by_drain_and_given_up_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordee.wire.connection.MAX_BUFFERED_BYTES", 8 << 20)

    async def test(hub: Hub) -> None:
        peer = await hub.join()
        await asyncio.sleep(0)
        peer.connection._transport.pause_reading()
        server_end = hub.connections[0]
        server_end.send({}, bytes(6 << 20))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(server_end.drain(), 0.1)
        while server_end.send({}, bytes(1 << 20)):
            await asyncio.sleep(0)
        await until(lambda: hub.ended)
        assert "stopped reading" in str(hub.ended[0])
        await asyncio.wait_for(server_end.drain(), 1)

    with_hub(test)


def test_a_peer_that_takes_nothing_does_not_keep_a_closing_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordee.wire.connection._GOODBYE_S", 0.2)

    async def test(hub: Hub) -> None:
        peer = await hub.join()
        await asyncio.sleep(0)
        peer.connection._transport.pause_reading()
        hub.connections[0].send({}, bytes(12 << 20))
        hub.connections[0].close("enough")
        await asyncio.wait_for(hub.connections[0].wait_closed(), 3)
        assert hub.ended == [None]

    with_hub(test)


def fails_at_arithmetic(*_: Any) -> None:
    raise ZeroDivisionError


def fails_at_a_full_disk(*_: Any) -> None:
    raise OSError(28, "No space left on device")  # of an OSError asyncio itself would say nothing


def fails_to_answer(connection: wire.Connection, *_: Any) -> None:
    connection.send({}, bytes(17 << 20))


@pytest.mark.parametrize("fails", [fails_at_arithmetic, fails_at_a_full_disk, fails_to_answer])
def test_a_handler_that_fails_is_told_and_ends_its_own_connection_only(fails: Callable[..., None]) -> None:
    async def test(hub: Hub) -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        bad, good = await hub.join("bad"), await hub.join("good")
        hub.connections[0].on_message = fails
        bad.connection.send({"echo": 1})
        await until(lambda: bad.ended)
        good.connection.send({"echo": 2})
        await until(lambda: good.messages)
        assert [error.__traceback__.tb_next.tb_frame.f_code.co_name for error in told] == [fails.__name__]
        assert "could not be handled" in str(hub.ended[0])

    with_hub(test)


def test_two_hundred_agents_connect_at_once_and_all_are_heard() -> None:
    async def test(hub: Hub) -> None:
        peers = await asyncio.gather(*(hub.join(f"local-{number}") for number in range(200)))
        for number, peer in enumerate(peers):
            peer.connection.send({"echo": number})
        await until(lambda: all(peer.messages for peer in peers))
        assert {peer.messages[0][0]["answer"] for peer in peers} == set(range(200))
        assert len(hub.server.connections) == 200
        assert not hub.refusals
        hub.server.close("over")
        await until(lambda: all(peer.ended == [None] for peer in peers))

    with_hub(test)


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    async def main() -> None:
        with socket.create_server((HOST, 0)) as silent:
            with pytest.raises(WireError, match=r"no answer from 127.0.0.1:\d+ within 0.2 s"):
                await wire.connect(
                    HOST,
                    silent.getsockname()[1],
                    TOKEN,
                    "agent",
                    "a",
                    epoch=1,
                    on_message=lambda *_: None,
                    on_close=lambda *_: None,
                    timeout=0.2,
                )

    asyncio.run(main())


def test_nobody_listening_is_a_wire_error_with_the_place() -> None:
    async def main() -> None:
        with pytest.raises(WireError, match=r"cannot connect to 127.0.0.1:\d+"):
            await wire.connect(
                HOST,
                wire.pick_port(HOST),
                TOKEN,
                "agent",
                "a",
                epoch=1,
                on_message=lambda *_: None,
                on_close=lambda *_: None,
            )

    asyncio.run(main())


def test_a_large_frame_with_a_wrong_seal_costs_one_look_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = 0
    real = connecting_end.hashlib.blake2b

    class Counted:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def copy(self) -> Counted:
            return Counted(self.inner.copy())

        def update(self, data: Any) -> None:
            nonlocal hashed
            hashed += len(data)
            self.inner.update(data)

        def digest(self) -> bytes:
            return bytes(self.inner.digest())

    counting = SimpleNamespace(blake2b=lambda **more: Counted(real(**more)))
    monkeypatch.setattr(connecting_end, "hashlib", counting)

    async def test(hub: Hub) -> None:
        peer = await hub.join()
        peer.connection._sent = 10**6  # its seal fits no place near by
        peer.connection.send({"t": "telemetry"}, b"x" * (8 << 20))
        await until(lambda: peer.ended)

    with_hub(test)
    assert hashed < 18 << 20  # once by the one that sends it, once by the one that looks at it
