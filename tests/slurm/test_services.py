"""Services on a real Slurm: in an allocation, moved there with their data, and handed over from one allocation to the next."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from tests.systems.services.conftest import BLUEPRINT, Services

from cordee.backends.slurm.node.addresses import _address_of_interface
from cordee.systems.services.deployment import stop
from cordee.systems.services.door.folder import DoorFolder
from cordee.systems.services.instance import deployed

ON_SLURM = ("--on", "slurm")
CALM = ("--job", "vet.max_load=1000")


@pytest.fixture
def services(slurm, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORDEE_SERVICES", str(tmp_path / "services"))
    monkeypatch.setenv("CORDEE_CATALOGUES", str(tmp_path / "catalogue"))
    yield Services(tmp_path, capsys)
    for folder in deployed():
        stop(folder)
    DoorFolder().stop()


def data(url: str, token: str) -> str:
    request = urllib.request.Request(f"{url}/data", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


@pytest.mark.gate
def test_a_service_moves_into_an_allocation_and_back_with_its_data(services):
    code, _, said = services.call("deploy", str(services.blueprint), *CALM, "--json")
    assert code == 0, said
    code, moved, said = services.call("move", "echo", *ON_SLURM, "--json")
    assert code == 0, said
    assert moved["moved"] == ["/data"]
    there = moved["services"][0]
    assert (there["target"], there["state"], there["node"]) == ("slurm", "ready", "n1")
    assert "echo" in subprocess.run(["squeue", "--noheader", "--format=%j"], capture_output=True, text=True).stdout
    code, back, said = services.call("move", "echo", "--on", "local", "--json")
    assert (code, back["services"][0]["target"]) == (0, "process"), said
    assert (services.root() / "volumes" / "data" / "starts").read_text() == "xxx"


@pytest.fixture
def asked_all_the_time(services):
    """A service without volumes behind the door, in an allocation; who asks it all the time, and what went wrong."""

    def deploy(*more: str):
        assert services.call("door", "start")[0] == 0
        scratch = services.folder / "scratch"
        scratch.mkdir()
        text = BLUEPRINT.replace('"{volume.data}"]', f'"{scratch}"]').replace('[volumes.data]\npath = "/data"\n', "")
        code, now, said = services.call(
            "deploy", str(services.write(text)), "--door", *ON_SLURM, *CALM, *more, "--json"
        )
        assert code == 0, said
        url, token = now["endpoints"][0]["url"], (services.root() / "secrets" / "token").read_text()
        asking.start(url, token)

    asking = Asking()
    yield deploy, asking
    asking.end()


class Asking:
    def __init__(self) -> None:
        self.wrong, self.right, self._ended = [], [], threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def start(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._thread.start()

    def _ask(self) -> None:
        while not self._ended.is_set():
            try:
                self.right.append(data(self._url, self._token))
            except OSError as error:
                self.wrong.append(repr(error))
            time.sleep(0.05)

    def end(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


def test_no_request_is_lost_from_one_allocation_to_the_next(services, asked_all_the_time):
    deploy, asking = asked_all_the_time
    deploy()
    code, _, said = services.call("handover", "echo", "--json")
    time.sleep(1)
    asking.end()
    assert code == 0, said
    assert asking.wrong == []
    assert set(asking.right) == {"/data hello"}
    assert (services.folder / "scratch" / "starts").read_text() == "xx"
    assert len(list((services.root() / "runs").glob("[!.]*"))) == 2


@pytest.mark.campaign
def test_the_door_hands_over_before_the_time_of_an_allocation_ends(services, asked_all_the_time):
    deploy, asking = asked_all_the_time
    deploy("--time", "4min")
    deadline = time.monotonic() + 400
    history = services.root() / "history.jsonl"
    while time.monotonic() < deadline and '"handed over"' not in history.read_text():
        time.sleep(0.5)
    time.sleep(5)
    asking.end()
    assert '"handed over"' in history.read_text(), (DoorFolder().root / "keeper.log").read_text()
    assert asking.wrong == []


def name_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the profile name a network interface of this machine, loopback where there is no other; return its address.

    Nodes of the disposable Slurm have the address 127.0.0.1.
    """
    known = {name: _address_of_interface(name) for _, name in socket.if_nameindex()}
    found = [(name, address) for name, address in known.items() if address and not address.startswith("127.")]
    interface, address = found[0] if found else ("lo", "127.0.0.1")
    (folder / "slurm.toml").write_text(f'name = "slurm"\nscheduler = "slurm"\nnetwork_interface = "{interface}"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(folder))
    return address


@pytest.mark.gate
@pytest.mark.parametrize("bind", ["loopback", "network"])
def test_a_service_in_an_allocation_listens_at_its_node_and_refuses_strangers(
    services, slurm, tmp_path, monkeypatch, bind
):
    address = name_network(tmp_path, monkeypatch) if bind == "network" else "127.0.0.1"
    code, now, said = services.call("deploy", str(services.blueprint), "--bind", bind, *ON_SLURM, *CALM, "--json")
    assert code == 0, said
    url = now["endpoints"][0]["url"]
    assert url.startswith(f"http://{address}:")
    assert data(url, (services.root() / "secrets" / "token").read_text()) == "/data hello"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        data(url, "wrong")
    code, _, said = services.call("status", "echo")
    assert code == 0
    assert f"{url}  (http, on n1)" in said
    assert "asked GET" in said
