"""What is counted is what a server has got; other people's connections are not the run's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.systems.egress.receiver import receiving

from cordee.core.clock import unix_s
from cordee.machine.tcp_sockets import TcpConnection, TcpConnections
from cordee.systems.egress.node.classes import LISTED, PRIVATE, REST, SITE, DestinationClasses
from cordee.systems.egress.node.companion import NodeEgress
from cordee.systems.egress.node.counts import NFT, FileCounts, SocketCounts

SENDING = Path(__file__).with_name("sending.py")


def counted(counts: SocketCounts, enough: int, seconds: float = 20.0) -> int:
    deadline = time.monotonic() + seconds
    sent = 0
    while time.monotonic() < deadline and sent < enough:
        counts.look()
        sent = sum(one.sent for one in counts.by_address.values())
        time.sleep(0.02)
    return sent


def test_what_a_child_sends_is_counted_as_the_server_counts_it():
    counts = SocketCounts("no-run/no-node/", alone=False)
    with receiving() as server:
        words = [server.address[0], str(server.address[1]), str(3_000_000), "0.02", "0"]
        child = subprocess.Popen([sys.executable, str(SENDING), *words])
        sent = counted(counts, 3_000_000)
        assert child.wait() == 0
        counts.look()
        assert server.bytes == 3_000_000
        assert sent == pytest.approx(server.bytes, abs=2)  # its beginning and end count as a byte each
    assert counts.by_address["127.0.0.1"].connections == 1
    counts.close()


class Told:
    """A kernel that tells of connections as the test says."""

    hears_ends, missed = True, 0

    def __init__(self) -> None:
        self.now: list[TcpConnection] = []
        self.over: list[TcpConnection] = []

    def living(self) -> list[TcpConnection]:
        return self.now

    def ended(self) -> list[TcpConnection]:
        over, self.over = self.over, []
        return over

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("address", "counted"), [("203.0.113.1", 1350), ("127.0.0.1", 1050)])
def test_short_connections_count_where_the_run_has_another_to_the_same_address(monkeypatch, address, counted):
    told = Told()
    monkeypatch.setattr("cordee.systems.egress.node.counts.TcpConnections", lambda: told)
    with socket.socket() as own:
        inode = os.fstat(own.fileno()).st_ino
        child = subprocess.Popen(["sleep", "20"], pass_fds=[own.fileno()])
        counts = SocketCounts("no-run/no-node/", alone=False)
        told.over = [TcpConnection(1, 0, address, 443, 100, 0), TcpConnection(2, 0, "203.0.113.9", 443, 7, 0)]
        counts.look()
        assert counts.by_address == {}
        assert counts.unclaimed_sent == 107
        told.now = [TcpConnection(3, inode, address, 443, 1000, 0)]
        counts.look()
        told.now, told.over = (
            [],
            [TcpConnection(3, 0, address, 443, 1050, 0), TcpConnection(4, 0, address, 443, 200, 0)],
        )
        counts.look()
        child.kill()
        child.wait()
    assert counts.by_address[address].sent == counted
    assert counts.unclaimed_sent == 1357 - counted


def test_connections_of_others_are_not_the_runs():
    counts = SocketCounts("no-run/no-node/", alone=False)
    with receiving() as server, socket.create_connection(server.address) as own:  # this process is the agent
        own.sendall(b"x" * 100_000)
        for _ in range(6):
            counts.look()
    assert counts.by_address == {}
    counts.close()


def test_ipv4_in_ipv6_is_ipv4():
    connections = TcpConnections()
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        mapped = socket.create_connection(("::ffff:127.0.0.1", listening.getsockname()[1]))
        found = {one.remote for one in connections.living() if one.port == listening.getsockname()[1]}
        mapped.close()
    connections.close()
    assert found == {"127.0.0.1"}


def test_the_narrowest_network_says_the_class():
    listed = {SITE: dict.fromkeys(PRIVATE, ""), LISTED: {"10.1.2.0/24": "cern", "data.example": "hub"}}
    classes = DestinationClasses(listed, lambda name: ["203.0.113.7"] if name == "data.example" else [])
    assert classes.of("10.1.2.3") == (LISTED, "cern")
    assert classes.of("10.1.3.3").kind == SITE
    assert classes.of("203.0.113.7").kind == REST
    classes.ask()
    assert classes.of("203.0.113.7") == (LISTED, "hub")
    assert classes.of("2001:db8::1").kind == REST
    assert classes.of("?").kind == REST


def test_the_sites_counters_go_before_sampling_and_what_they_told_is_kept_when_they_end(tmp_path):
    file = tmp_path / "0.json"
    document = {"at": unix_s(), "destinations": {"203.0.113.7": [5_000_000, 70]}}
    file.write_text(json.dumps(document))
    part = {"listed": {}, "counters": str(tmp_path / "{job}.json"), "every_s": 0.1}
    egress = NodeEgress(part, "no-run/no-node/", alone=False)
    first = egress.look()
    assert first.method == NFT.name
    assert first.news["203.0.113.7"]["sent_bytes"] == 5_000_000
    assert first.news["203.0.113.7"]["class"] == REST
    file.write_text(json.dumps({**document, "at": unix_s() - 60}))
    assert egress.look().method == "sock-diag"
    assert egress._counts.by_address["203.0.113.7"].sent == 5_000_000
    egress.close()


def test_what_was_sent_since_the_last_look_is_told_when_a_rank_ends(tmp_path):
    file = tmp_path / "0.json"
    file.write_text(json.dumps({"at": unix_s(), "destinations": {}}))
    part = {"listed": {}, "counters": str(tmp_path / "{job}.json"), "every_s": 0.1}
    egress = NodeEgress(part, "no-run/no-node/", alone=False)
    egress.look()
    file.write_text(json.dumps({"at": unix_s(), "destinations": {"203.0.113.7": [5_000_000, 70]}}))
    assert egress.last_news()["203.0.113.7"]["sent_bytes"] == 5_000_000
    assert egress.last_news() == {}  # of ranks that end together the first tells all
    assert "203.0.113.7" not in egress.look().news
    file.unlink()
    time.sleep(0.06)
    assert egress.last_news() == {}
    egress.close()


def test_an_address_that_may_be_a_listed_host_is_told_once_that_was_asked(tmp_path):
    document = {"at": unix_s(), "destinations": {"203.0.113.7": [5_000_000, 70]}}
    (tmp_path / "0.json").write_text(json.dumps({**document, "destinations": {}}))
    part = {"listed": {"listed": {"hub.invalid": ""}}, "counters": str(tmp_path / "{job}.json"), "every_s": 0.1}
    egress = NodeEgress(part, "no-run/no-node/", alone=False)
    egress.look()
    (tmp_path / "0.json").write_text(json.dumps(document))
    assert "203.0.113.7" not in egress.last_news()
    assert "203.0.113.7" in egress.look().news
    egress.close()


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"at": 1}', '{"at": "x", "destinations": {"a": [1, 2]}}', '{"at": 1e12, "destinations": {"a": 3}}'],
)
def test_a_file_that_holds_no_counts_is_refused(tmp_path, text):
    (tmp_path / "counts").write_text(text)
    with pytest.raises((OSError, ValueError, TypeError, KeyError)):
        FileCounts(str(tmp_path / "counts")).look()
