"""What a service finds on its node: environment, address and ports."""

from __future__ import annotations

import shutil
import socket
from typing import Any

import pytest

from cordee.backends.slurm.node import addresses
from cordee.systems.services.node.location import ServiceLocation


@pytest.fixture
def spec(tmp_path):
    """A service with one secret, as it is started."""
    (tmp_path / "token").write_text("open-sesame")
    secret = {"path": str(tmp_path / "token"), "env": "ECHO_SERVER_TOKEN", "env_file": None}
    empty: dict[str, Any] = {"volumes": {}, "files": {}, "parameters": {}, "env": {}, "path": [], "put_first": []}
    port = {"protocol": "http", "number": None, "inside": 8080}
    return {
        **empty,
        "service": "echo",
        "bind": "loopback",
        "secrets": {"token": secret},
        "ports": {"http": port},
        "client": {"ECHO_TOKEN": "{value.token}"},
        "token_file": None,
    }


def placed(spec, tmp_path) -> ServiceLocation:
    place = ServiceLocation(spec, tmp_path / "files")
    place.choose_ports()
    place.fill()
    return place


def test_what_its_clients_are_told_is_no_setting_of_a_service_and_lets_no_stranger_in(spec, tmp_path, monkeypatch):
    monkeypatch.setenv("ECHO_TOKEN", "of before")
    monkeypatch.setenv("MY_ADDRESS", "http://me:open-sesame@node1")
    monkeypatch.setenv("OTHER", "kept")
    place = placed(spec, tmp_path)
    assert "ECHO_TOKEN" not in place.env
    assert place.env["ECHO_SERVER_TOKEN"] == "open-sesame"
    assert {"OTHER", "ECHO_TOKEN", "MY_ADDRESS", "ECHO_SERVER_TOKEN"} & set(place.stranger) == {"OTHER"}


def test_a_program_is_the_one_of_the_shell_and_others_are_looked_for_after_it(spec, tmp_path, monkeypatch):
    for name in ("shell/both", "further/both", "further/alone"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(0o755)
    further = str(tmp_path / "further")
    monkeypatch.setenv("PATH", f"{further}:{tmp_path / 'shell'}")
    path = placed({**spec, "path": [str(tmp_path / "furth*")], "put_first": [further]}, tmp_path).env["PATH"]
    assert shutil.which("both", path=path) == str(tmp_path / "shell" / "both")
    assert shutil.which("alone", path=path) == str(tmp_path / "further" / "alone")


def test_a_service_has_its_port_of_before_while_that_is_free(spec, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        assert placed({**spec, "ports_before": {"http": number, "gone": 7}}, tmp_path).ports != {"http": number}
    assert placed({**spec, "ports_before": {"http": number, "gone": 7}}, tmp_path).known["port.http"] == str(number)


def test_the_address_for_other_nodes_is_none_of_loopback_where_the_host_name_is(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [(socket.AF_INET, 0, 0, "", ("127.0.1.1", 0))])
    monkeypatch.setattr(addresses, "_can_listen", lambda address: True)
    sends_from = "192.0.2.7"

    class Probe(socket.socket):
        def connect(self, there: Any) -> None:
            assert self.type == socket.SOCK_DGRAM

        def getsockname(self) -> tuple[str, int]:
            return sends_from, 40000

    monkeypatch.setattr(socket, "socket", Probe)
    assert ServiceLocation({**spec, "bind": "network"}, tmp_path).address == sends_from
    monkeypatch.setattr(addresses, "_address_of_interface", {"ib0": "192.0.2.8"}.get)
    assert ServiceLocation({**spec, "bind": "network", "network_interface": "ib0"}, tmp_path).address == "192.0.2.8"
    assert ServiceLocation(spec, tmp_path).address == "127.0.0.1"
