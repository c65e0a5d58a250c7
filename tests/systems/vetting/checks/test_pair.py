"""Two nodes measure the way between them: real children of `python -m cordee.systems.vetting.node.checks` on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cordee.wire.handshake import prove
from cordee.wire.ports import pick_port

HOST = "127.0.0.1"
DEADLINE_S = 20.0


def start(
    role: str, node: str, peer: str, port: int, *, deadline_s: float = DEADLINE_S, **more: Any
) -> subprocess.Popen[str]:
    """Start one end of a meeting."""
    parameters = {"role": role, "address": HOST, "port": port, "token": "secret", "peer": peer, "seconds": 0.4, **more}
    entry = {"check": "pair.bandwidth", "parameters": parameters, "deadline_s": deadline_s}
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    request = {"checks": [entry], "node": node, "deadline_s": deadline_s, "env": env}
    child = subprocess.Popen(
        [sys.executable, "-m", "cordee.systems.vetting.node.checks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(request))
    child.stdin.close()
    return child


def result_of(child: subprocess.Popen[str]) -> dict[str, Any]:
    assert child.stdout is not None
    with child:
        return json.loads(child.stdout.read())


def meet(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the listening n1 and the connecting n2 found."""
    port = pick_port(HOST)
    ends = [start("connect", "n2", "n1", port, **more), start("listen", "n1", "n2", port, **more)]
    connect, listen = map(result_of, ends)
    return listen, connect


def test_two_nodes_measure_both_directions_and_agree() -> None:
    listen, connect = meet()
    assert listen["status"] == connect["status"] == "pass"
    assert listen["value"] == connect["value"] > 0
    assert listen["facts"]["to_peer_bytes_per_s"] == connect["facts"]["from_peer_bytes_per_s"]
    assert listen["value"] == min(listen["facts"][f"{way}_peer_bytes_per_s"] for way in ("to", "from"))
    assert "/s to n2" in listen["evidence"]
    assert "/s to n1" in connect["evidence"]


def test_a_listener_whose_partner_never_comes_names_it() -> None:
    result = result_of(start("listen", "n1", "n7", pick_port(HOST), deadline_s=1.5))
    assert (result["status"], result["cause"]) == ("unknown", "silent")
    assert "n7 did not come" in result["evidence"]
    assert result["facts"]["peer"] == "n7"


def test_a_partner_that_does_not_listen_is_named_with_its_place() -> None:
    port = pick_port(HOST)
    result = result_of(start("connect", "n1", "n7", port, deadline_s=2.0))
    assert (result["status"], result["cause"]) == ("unknown", "error")
    assert f"cannot reach n7 at {HOST}:{port}" in result["evidence"]
    assert "connection refused" in result["evidence"]


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server((HOST, pick_port(HOST))) as taken:
        result = result_of(start("listen", "n1", "n2", taken.getsockname()[1]))
    assert result["status"] == "unknown"
    assert "address already in use" in result["evidence"]


def test_a_partner_with_another_token_is_turned_away() -> None:
    port = pick_port(HOST)
    listener = start("listen", "n1", "n2", port, deadline_s=3.0)
    stranger = result_of(start("connect", "n2", "n1", port, token="other"))
    assert stranger["status"] == "unknown"
    assert "n1 ended the connection" in stranger["evidence"]
    assert result_of(listener)["cause"] == "silent"


def test_a_partner_of_another_name_is_turned_away() -> None:
    port = pick_port(HOST)
    listener = start("listen", "n1", "n2", port, deadline_s=3.0)
    assert result_of(start("connect", "n3", "n1", port))["status"] == "unknown"
    assert "n2 did not come" in result_of(listener)["evidence"]


def test_whoever_listens_without_the_token_is_found_out() -> None:
    with socket.create_server((HOST, pick_port(HOST))) as impostor:
        connecting = start("connect", "n2", "n1", impostor.getsockname()[1])
        taken = impostor.accept()[0]
        with taken:
            taken.sendall(b'{"nonce": "00"}\n')
            taken.recv(4096)
            taken.sendall(b'{"proof": "00"}\n')
            result = result_of(connecting)
    assert "does not know the token" in result["evidence"]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.0\r\n\r\n", b"\xff\xfe\n", b"[]\n", b"x" * 10000, b'{"use": "control"}\n']
)
def test_strangers_do_not_disturb_a_meeting(said: bytes) -> None:
    port = pick_port(HOST)
    listener = start("listen", "n1", "n2", port)
    stranger = _connected(port)
    with stranger:
        stranger.sendall(said)
        connect = result_of(start("connect", "n2", "n1", port))
        listen = result_of(listener)
    assert listen["status"] == connect["status"] == "pass"


def test_a_partner_that_dies_midway_is_named() -> None:
    port = pick_port(HOST)
    listener = start("listen", "n1", "n2", port)
    for connection in [_introduced(port, use) for use in ("control", "there", "back")]:
        connection.close()
    result = result_of(listener)
    assert (result["status"], result["cause"]) == ("unknown", "error")
    assert "n2 ended the connection" in result["evidence"] or "connection to n2 broke" in result["evidence"]


def test_a_partner_that_sends_nothing_is_named() -> None:
    port = pick_port(HOST)
    listener = start("listen", "n1", "n2", port, deadline_s=2.0)
    connections = [_introduced(port, use) for use in ("control", "there", "back")]
    result = result_of(listener)
    assert (result["status"], result["cause"]) == ("unknown", "timeout")
    assert "n2 sent no data in time" in result["evidence"]
    for connection in connections:
        connection.close()


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_two_nodes_measure_with_torch() -> None:
    listen, connect = meet(backend="torch", payload_bytes=1 << 20, deadline_s=120)
    assert listen["status"] == connect["status"] == "pass", (listen, connect)
    assert listen["facts"]["engine"] == "gloo"
    assert listen["facts"]["allreduce_bytes_per_s"] > 0
    assert listen["value"] == pytest.approx(connect["value"])


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_with_torch_a_partner_with_another_token_is_turned_away() -> None:
    port = pick_port(HOST)
    ends = [
        start(role, node, peer, port, backend="torch", token=token, deadline_s=120)
        for role, node, peer, token in (("listen", "n1", "n2", "a"), ("connect", "n2", "n1", "b"))
    ]
    listen, connect = map(result_of, ends)
    assert listen["status"] == connect["status"] == "unknown"
    assert "does not know the token" in listen["evidence"]


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_with_torch_a_partner_that_does_not_listen_is_named() -> None:
    result = result_of(start("connect", "n1", "n7", pick_port(HOST), backend="torch", deadline_s=15))
    assert "cannot reach n7" in result["evidence"]


def _connected(port: int) -> socket.socket:
    """Return a connection, as soon as somebody listens."""
    while True:
        try:
            return socket.create_connection((HOST, port))
        except ConnectionRefusedError:
            continue


def _introduced(port: int, use: str) -> socket.socket:
    """Return a connection of n2 to n1 that has proved that it knows the token."""
    connection = _connected(port)
    greeting = json.loads(connection.recv(4096))
    proof = prove(b"secret", "pair there", [greeting["nonce"], "00", use, "n2", "n1"]).hex()
    connection.sendall(json.dumps({"nonce": "00", "use": use, "node": "n2", "proof": proof}).encode() + b"\n")
    assert "proof" in json.loads(connection.recv(4096))
    return connection
