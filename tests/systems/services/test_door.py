"""The front door: nginx, and services behind it that move, sleep, wake and end."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.systems.services.conftest import BLUEPRINT, PROGRAM
from tests.systems.services.test_deployment import asked, until

from cordee.machine.processes.tree import all_processes
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import replay
from cordee.systems.services.deployment import hand_over_is_open
from cordee.systems.services.door._base import DoorSettings
from cordee.systems.services.door.folder import DoorFolder
from cordee.systems.services.door.nginx import NginxDoor
from cordee.systems.services.instance import ServiceFolder
from cordee.testing.doors import DoorContract, OpenDoor, Upstream
from cordee.testing.patience import wait_until

pytestmark = pytest.mark.usefixtures("real")


class TestNginx(DoorContract):
    @pytest.fixture
    def door_class(self):
        return NginxDoor

    def test_one_that_has_only_begun_is_not_told_yet(self, tmp_path):
        door = NginxDoor(tmp_path, DoorSettings("127.0.0.1", tmp_path / "hold", 30.0, 60.0, "", "", "", "x" * 40))
        with subprocess.Popen(["sleep", "60"]) as begun:  # as nginx before it knows signals
            assert not door.reload(begun.pid)
            assert begun.poll() is None
            begun.kill()
        assert not door.reload(begun.pid)


@pytest.mark.gate
def test_a_door_with_a_certificate_speaks_tls(tmp_path):
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    folder = tmp_path / "door"
    folder.mkdir()
    door, one = OpenDoor(NginxDoor, folder, str(certificate), str(key)), Upstream(b"one")
    try:
        door.target = one.target
        door.comes.set()
        trusted = ssl.create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(f"https://localhost:{door.port}/echo", context=trusted, timeout=20) as answer:
            assert answer.read() == b"one "
    finally:
        door.close()
        one.close()


@pytest.fixture
def doored(services):
    assert services.call("door", "start")[0] == 0
    yield services
    DoorFolder().stop()


def address(services, name: str = "echo") -> tuple[str, str]:
    now = services.call("status", name, "--json")[1]["services"][0]
    return now["endpoints"][0]["url"], (services.root(name) / "secrets" / "token").read_text()


STATELESS = (
    BLUEPRINT.replace('"{volume.data}"]', '"SCRATCH"]').replace('[volumes.data]\npath = "/data"\n', "")
    + "\n[need]\ncpus = 1\n"
)


def stateless(services) -> Path:
    scratch = services.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return services.write(STATELESS.replace("SCRATCH", str(scratch)))


class Asking:
    """Clients that ask all the time, each request with a number of its own, and once more where no connection stood."""

    def __init__(self, url: str, token: str, clients: int = 4) -> None:
        self.answers, self.wrong, self._end = [], [], threading.Event()
        self._url, self._token = url, token
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._end.is_set():
            try:
                self.answers.append(asked(f"{self._url}/data", self._token)[0])
            except urllib.error.URLError as error:
                if not isinstance(error.reason, ConnectionRefusedError):
                    self.wrong.append(repr(error))
            except OSError as error:
                self.wrong.append(repr(error))
            time.sleep(0.02)

    @property
    def right(self) -> int:
        """How many were answered as they should be."""
        return self.answers.count(200)

    def end(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("volumes", [True, False])
def test_no_request_is_lost_while_one_run_hands_over_to_the_next(doored, volumes):
    services = doored
    path = services.blueprint if volumes else stateless(services)
    code, now, said = services.call("deploy", str(path), "--door", "--json")
    assert code == 0, said
    url, token = address(services)
    asking = Asking(url, token)
    code, after, said = services.call("handover", "echo", "--json")
    time.sleep(0.5)
    asking.end()
    assert code == 0, said
    assert asking.wrong == []
    assert asking.right > 10
    assert after["services"][0]["run"] != now["run"]
    assert after["services"][0]["endpoints"][0]["url"] == url
    assert address(services)[0] == url
    first = RunFolder(now["run"])
    deadline = time.monotonic() + 60
    while not (ended := replay(read_journal(first.journal), first.id)).ended:  # it has let its data go before that
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert ended.state == "finished"
    if volumes:
        assert (services.root() / "volumes" / "data" / "starts").read_text() == "xx"


def test_the_next_run_waits_for_the_data_for_as_long_as_somebody_is_connected_to_the_one_before(doored):
    code, now, said = doored.call("deploy", str(doored.blueprint), "--door", "--json")
    assert code == 0, said
    behind = urlsplit(now["endpoints"][0]["behind"])
    with socket.create_connection((behind.hostname, behind.port)):
        code, after, said = doored.call("handover", "echo", "--drain", "45s", "--json")
    assert code == 0, said
    assert after["services"][0]["run"] != now["run"]
    assert (doored.root() / "volumes" / "data" / "starts").read_text() == "xx"


def test_a_hand_over_to_a_run_that_is_never_ready_leaves_the_one_that_runs(doored):
    services = doored
    services.call("deploy", str(stateless(services)), "--door")
    url, token = address(services)
    (services.folder / "scratch" / "broken").touch()
    asking = Asking(url, token, 2)
    code, _, said = services.call("handover", "echo", "--wait", "8s")
    asking.end()
    assert code == 1
    assert "the next run was not ready, so the one before runs" in said
    assert asking.wrong == []
    assert asked(f"{url}/data", token)[0] == 200


@pytest.mark.parametrize("words", [("--to", "{broken}"), ("--rotate", "other")])
def test_no_request_is_lost_where_one_run_ends_before_the_next_is_ready(doored, words):
    services = doored
    text = BLUEPRINT + "\n[secrets.other]\n"
    assert services.call("deploy", str(services.write(text)), "--door", "--json")[0] == 0
    broken = services.write(text.replace('"python"', '"no-such-program"'), "broken.toml")
    asking = Asking(*address(services))
    code, _, said = services.call("upgrade", "echo", *(word.format(broken=broken) for word in words))
    time.sleep(0.5)
    asking.end()
    assert code == (1 if "--to" in words else 0), said
    assert asking.wrong == []
    assert asking.right > 10


@pytest.mark.parametrize("event", ["hand-over begun", "requests wait", "upgraded"])
@pytest.mark.parametrize("volumes", [True, False])
def test_a_killed_upgrade_leaves_one_run_that_answers(doored, event, volumes):
    services = doored
    if not volumes and event == "requests wait":
        event = "the run before has ended"  # nothing waits
    path = services.blueprint if volumes else stateless(services)
    assert services.call("deploy", str(path), "--door", "--json")[0] == 0
    url, token = address(services)
    command = [sys.executable, "-m", "cordee.faces.cli", "service", "upgrade", "echo", "--json"]
    history = services.root() / "history.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as upgrade:
        wait_until(lambda: f'"{event}"' in history.read_text(), 60)
        upgrade.kill()
    wait_until(lambda: not hand_over_is_open(ServiceFolder(services.root()).record()), 60)
    wait_until(lambda: asked(f"{url}/data", token)[0] == 200, 60, said=lambda: asked(f"{url}/data", token))
    runs = [RunFolder(path) for path in (services.root() / "runs").glob("[!.]*")]
    wait_until(lambda: sum(not replay(read_journal(one.journal), one.id).ended for one in runs) == 1, 60)


@pytest.mark.parametrize("door", [("--door",), ()])
def test_an_upgrade_serves_on_until_the_next_revision_answers(doored, door):
    services = doored
    first = services.call("deploy", str(stateless(services)), *door, "--json")[1]
    url, token = address(services)
    asking = Asking(url, token)
    code, now, said = services.call("upgrade", "echo", "--set", "greeting=hej", "--json")
    assert code == 0, said
    assert now["services"][0]["run"] != first["run"]
    if not door:
        asking.end()
        url = address(services)[0]
    assert asked(f"{url}/data", token) == (200, "/data hej")
    (services.folder / "scratch" / "broken").touch()
    code, _, said = services.call("upgrade", "echo", "--set", "greeting=salut", "--wait", "20s")
    assert (code, "revision 1 runs on" in said) == (1, True), said
    asking.end()
    assert not (door and asking.wrong)  # without a door the old address is no more
    assert asking.right > 10
    assert asked(f"{url}/data", token) == (200, "/data hej")
    events = [json.loads(line)["event"] for line in (services.root() / "history.jsonl").read_text().splitlines()]
    first = ["hand-over begun", "upgraded", "the run before has ended"]
    assert events == ["deployed", *first, "hand-over begun", "hand-over given up"]


def test_a_request_wakes_a_service_that_nobody_used_and_not_one_that_was_stopped(doored):
    services = doored
    services.call("deploy", str(services.blueprint), "--door", "--idle", "1s")
    url, token = address(services)
    assert until(services, "stopped")["asleep"]
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}/data", headers={"Authorization": f"Bearer {token}"}), timeout=60
    ) as answer:
        assert answer.read() == b"/data hello"
    assert until(services, "stopped")["asleep"]
    services.call("stop", "echo")  # that it sleeps by then does not matter
    until_code(f"{url}/data", 503)
    assert not until(services, "stopped")["asleep"]


def wait_while_it_breaks_off(url: str, token: str) -> None:
    """Return once no request reaches a program that is about to end any more: such a one is not sent again, and is a 502."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and asked(url, token)[0] == 502:
        time.sleep(0.1)


def until_code(url: str, wanted: int) -> None:
    wait_until(lambda: asked(url)[0] == wanted, 20.0, said=lambda: asked(url), every_s=0.1)


def test_requests_wait_for_a_service_that_ended_by_itself(doored):
    services = doored
    services.call("deploy", str(services.blueprint), "--door")
    url, token = address(services)
    assert asked(f"{url}/leave", token)[0] == 502
    wait_while_it_breaks_off(f"{url}/data", token)
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}/data", headers={"Authorization": f"Bearer {token}"}), timeout=60
    ) as answer:
        assert answer.status == 200
    assert (services.root() / "volumes" / "data" / "starts").read_text() == "xx"


def test_a_killed_keeper_leaves_the_way_open_and_the_next_one_takes_the_proxy_over(doored):
    services = doored
    services.call("deploy", str(services.blueprint), "--door")
    url, token = address(services)
    keeper = DoorFolder().keeper()
    os.kill(keeper["pid"], signal.SIGKILL)
    wait_until(lambda: asked(f"{url}/data", token)[0] == 200)  # what it was told the proxy takes by and by
    assert services.call("door", "start")[0] == 0
    now = DoorFolder().keeper()
    assert (now["proxy"], now["pid"] != keeper["pid"]) == (keeper["proxy"], True)
    services.call("handover", "echo")
    assert asked(f"{url}/data", token)[0] == 200


@pytest.mark.parametrize("how", ["keeper", "proxy", "both"])
def test_a_killed_door_comes_back_and_only_what_was_under_way_may_fail(doored, how):
    services = doored
    assert services.call("deploy", str(services.blueprint), "--door")[0] == 0
    url, token = address(services)
    wait_while_it_breaks_off(f"{url}/data", token)
    asking, before = Asking(url, token), DoorFolder().keeper()
    time.sleep(0.5)
    for name, pid in (("keeper", before["pid"]), ("proxy", before["proxy"])):
        if how in (name, "both"):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    if how != "proxy":
        assert services.call("door", "start")[0] == 0
    while time.monotonic() < deadline and (DoorFolder().keeper().get("proxy") == before["proxy"]) != (how == "keeper"):
        time.sleep(0.05)
    right = asking.right
    while time.monotonic() < deadline and asking.right < right + 20:
        time.sleep(0.05)
    asking.end()
    assert asking.right >= right + 20
    assert len(asking.wrong) <= 4, asking.wrong  # one of each client
    if how != "keeper":
        wait_until(lambda: not any(one.session == before["proxy"] for one in all_processes().values()))
    assert (DoorFolder().keeper()["proxy"] == before["proxy"]) == (how == "keeper")


def test_a_service_that_asks_nobody_is_asked_for_a_token_by_the_door(doored):
    services = doored
    services.program.write_text(PROGRAM.replace('OPEN = "--open" in sys.argv', "OPEN = True"))
    text = BLUEPRINT.replace('[closed]\npath = "/data"\n', "").replace("schema = 1", 'schema = 1\nguard = "none"')
    assert services.call("deploy", str(services.write(text)), "--door")[0] == 0
    now = until(services, "ready")
    url = now["endpoints"][0]["url"]
    token = (services.root() / "secrets" / "door-token").read_text()
    until_code(f"{url}/data", 401)
    assert asked(f"{url}/data", token)[0] == 200


def test_requests_are_counted_by_service_and_day(doored):
    services = doored
    services.call("deploy", str(services.blueprint), "--door")
    url, token = address(services)
    for _ in range(5):
        asked(f"{url}/data", token)
    deadline = time.monotonic() + 20
    counted = 0
    while time.monotonic() < deadline and counted < 5:
        counted = services.call("door", "status", "--json")[1]["routes"][0].get("requests", 0)
        time.sleep(0.2)
    assert counted == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("door", "start", "--address", "0.0.0.0"), "passwords would cross the network in the open"),
        (("door", "start", "--certificate", "/no/such"), "a certificate and its key belong together"),
        (("door", "unit"), "the door was never opened"),
    ],
)
def test_a_door_that_would_be_unsafe_or_is_unknown_is_refused(services, words, said):
    code, _, told = services.call(*words)
    assert (code, said in told) == (2, True), told


def test_a_service_has_a_door_only_where_one_is_open_and_the_web_is_spoken(services):
    assert "no front door is open" in services.call("deploy", str(services.blueprint), "--door")[2]
    services.call("deploy", str(services.blueprint))
    code, _, said = services.call("handover", "echo")
    assert (code, "echo has no door that is open" in said) == (2, True)
    assert services.call("door", "start")[0] == 0
    try:
        tcp = BLUEPRINT.replace("port = 8080", 'port = 8080\nprotocol = "tcp"').replace('name = "echo"', 'name = "tcp"')
        code, _, said = services.call("deploy", str(services.write(tcp)), "--door")
        assert (code, "the front door leads to web servers, and tcp is none" in said) == (2, True)
        unit = services.call("door", "unit")[2]
        assert "ExecStart=" in unit
        assert "Restart=always" in unit
    finally:
        DoorFolder().stop()
