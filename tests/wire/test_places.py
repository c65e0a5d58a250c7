"""Ports and the rendezvous file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from cordee import wire
from cordee.core.errors import WireError

TOKEN = bytes(32)


def test_a_picked_port_is_free_and_below_the_outgoing_range() -> None:
    port = wire.pick_port("127.0.0.1")
    assert 20000 <= port <= 32000
    socket.create_server(("127.0.0.1", port)).close()


def test_a_taken_port_is_passed_over_and_a_full_range_is_said() -> None:
    low = next(
        port for port in range(20000, 31000) if all(_is_free(candidate) for candidate in (port, port + 1, port + 2))
    )
    with contextlib.ExitStack() as taken:
        taken.enter_context(socket.create_server(("127.0.0.1", low)))
        taken.enter_context(socket.create_server(("127.0.0.1", low + 2)))
        assert {wire.pick_port("127.0.0.1", low, low + 2) for _ in range(10)} == {low + 1}
        taken.enter_context(socket.create_server(("127.0.0.1", low + 1)))
        with pytest.raises(WireError, match="no port is free: Address already in use"):
            wire.pick_port("127.0.0.1", low, low + 2)
        with pytest.raises(WireError, match="no port is free"):
            asyncio.run(_serve_once(low))


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(WireError, match="Cannot assign requested address"):
        wire.pick_port("192.0.2.1", 20000, 20003)


def test_the_rendezvous_file_survives_a_round_trip_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "rendezvous.json"
    token = wire.new_token()
    wire.write_rendezvous(path, "10.0.0.1", 20001, 2, bytes(32))
    wire.write_rendezvous(path, "10.0.0.2", 20002, 3, token)
    assert wire.read_rendezvous(path) == ("10.0.0.2", 20002, 3, token)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["rendezvous.json"]


def test_a_rendezvous_file_that_is_not_there_yet_is_told_from_a_bad_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        wire.read_rendezvous(tmp_path / "rendezvous.json")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_rendezvous_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "rendezvous.json"
    wire.write_rendezvous(path, "10.0.0.1", 20001, 2, TOKEN)
    path.chmod(mode)
    with pytest.raises(WireError, match="may be read by others"):
        wire.read_rendezvous(path)


def test_a_rendezvous_file_of_someone_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rendezvous.json"
    wire.write_rendezvous(path, "10.0.0.1", 20001, 2, TOKEN)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(WireError, match=f"belongs to user {owner}, not to you"):
        wire.read_rendezvous(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema": "cordee.rendezvous/2"}', b'{"schema": "cordee.rendezvous/1"}', b"\xff"]
)
def test_a_damaged_rendezvous_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rendezvous.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(WireError, match="is damaged"):
        wire.read_rendezvous(path)


def test_a_link_or_a_pipe_in_its_place_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "rendezvous.json"
    wire.write_rendezvous(path, "10.0.0.1", 20001, 2, TOKEN)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(WireError, match="cannot read"):
        wire.read_rendezvous(tmp_path / "link")
    with pytest.raises(WireError, match="not a regular file"):
        wire.read_rendezvous(tmp_path / "pipe")


def test_a_vanished_folder_is_said_when_writing(tmp_path: Path) -> None:
    with pytest.raises(WireError, match="cannot write the rendezvous file: No such file or directory"):
        wire.write_rendezvous(tmp_path / "gone" / "rendezvous.json", "10.0.0.1", 20001, 2, TOKEN)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def _serve_once(port: int) -> None:
    await wire.serve("127.0.0.1", port, TOKEN, lambda connection: None)
