"""What a service finds on its node: environment, address and ports."""

from __future__ import annotations

from typing import Any

import pytest

from cordee.systems.services.node.location import ServiceLocation


@pytest.fixture
def spec(tmp_path):
    """A service with one secret, as it is started."""
    (tmp_path / "token").write_text("open-sesame")
    secret = {"path": str(tmp_path / "token"), "env": "ECHO_SERVER_TOKEN", "env_file": None}
    empty: dict[str, Any] = {"volumes": {}, "files": {}, "parameters": {}, "env": {}, "path": []}
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
