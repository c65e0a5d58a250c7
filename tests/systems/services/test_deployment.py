"""Services as runs: they are ready, closed, watched, upgraded and ended."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import stat
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.systems.services.conftest import BLUEPRINT

from cordee.systems.services.instance import ServiceFolder
from cordee.systems.services.node.location import ServiceLocation
from cordee.testing.patience import PatientWait

pytestmark = pytest.mark.usefixtures("real")


def asked(url: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def until(services, state: str, name: str = "echo", said: str = "") -> dict:
    patience = PatientWait(180.0)
    while not patience.over():
        now = services.call("status", name, "--json")[1]["services"][0]
        if now["state"] == state and said in now["why"]:
            return now
        time.sleep(0.1)
    raise AssertionError(now)


@pytest.mark.gate
def test_a_service_is_deployed_asked_upgraded_rolled_back_and_stopped(services):
    code, now, said = services.call("deploy", str(services.blueprint), "--set", "greeting=salut", "--json")
    assert code == 0, said
    assert now["ready"]
    assert now["why"].startswith("asked GET http://127.0.0.1:")
    url, token_file = now["endpoints"][0]["url"], now["endpoints"][0]["token_file"]
    token = Path(token_file).read_text()
    assert stat.S_IMODE(os.stat(token_file).st_mode) == 0o600
    assert stat.S_IMODE(services.root().stat().st_mode) == 0o700
    assert asked(f"{url}/data") == (401, "")
    assert asked(f"{url}/data", token) == (200, "/data salut")
    client = subprocess.run(
        ["sh", "-c", f". {now['client_file']}; echo $ECHO_URL $ECHO_TOKEN"], capture_output=True, text=True
    )
    assert client.stdout.split() == [url, token]

    record = "".join(path.read_text(errors="replace") for path in services.root().rglob("*.json*"))
    assert token not in record, "a secret is in the record"
    assert token not in services.call("logs", "echo")[2]
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert token not in shown

    code, _, said = services.call("deploy", str(services.blueprint))
    assert code != 0
    assert "runs already" in said

    newer = services.write(BLUEPRINT.replace('default = "hello"', 'default = "hello again"'), "newer.toml")
    code, changed, said = services.call("upgrade", "echo", "--to", str(newer), "--set", "greeting=hej", "--json")
    assert code == 0, said
    assert changed["services"][0]["revision"] == 2
    assert asked(changed["services"][0]["endpoints"][0]["url"] + "/data", token) == (200, "/data hej")
    code, back, said = services.call("rollback", "echo", "--json")
    assert back["services"][0]["revision"] == 1, said

    code, ended, _ = services.call("stop", "echo", "--json")
    assert (code, ended["services"][0]["state"]) == (0, "stopped")
    assert services.call("status", "echo")[0] == 1
    assert (services.root() / "volumes" / "data" / "starts").read_text() == "xxx"
    events = [json.loads(line)["event"] for line in (services.root() / "history.jsonl").read_text().splitlines()]
    assert events == ["deployed", "stopped", "upgraded", "stopped", "rolled back", "stopped"]


def test_a_service_that_lets_strangers_in_is_ended_before_it_counts_as_ready(services):
    path = services.write(
        BLUEPRINT.replace('"{volume.data}"]', '"{volume.data}", "--open"]\n[restart]'.replace("\n[restart]", ""))
    )
    code, _, said = services.call("deploy", str(path))
    assert code == 1
    assert "it lets strangers in" in said


def test_an_upgrade_that_does_not_become_ready_gives_the_old_revision_back(services):
    services.call("deploy", str(services.blueprint))
    bad = services.write(
        BLUEPRINT.replace('path = "/health"', 'path = "/nothing"').replace('"20s"', '"2s"'), "bad.toml"
    )
    code, _, said = services.call("upgrade", "echo", "--to", str(bad))
    assert code == 1
    assert "revision 1 is back" in said
    assert until(services, "ready")["revision"] == 1


@pytest.mark.gate
def test_a_program_that_ends_is_started_again_and_keeps_its_data(services):
    now = services.call("deploy", str(services.blueprint), "--json")[1]
    try:
        urllib.request.urlopen(now["endpoints"][0]["url"] + "/leave", timeout=5)
    except OSError:
        pass
    deadline = time.monotonic() + 30
    starts = services.root() / "volumes" / "data" / "starts"
    while time.monotonic() < deadline and len(starts.read_text()) < 2:
        time.sleep(0.1)
    assert until(services, "ready")["revision"] == 1
    assert starts.read_text() == "xx"


def test_a_service_whose_volume_is_gone_does_not_begin_without_its_data(services):
    now = services.call("deploy", str(services.blueprint), "--json")[1]
    shutil.rmtree(services.root() / "volumes" / "data")
    with contextlib.suppress(OSError):
        urllib.request.urlopen(now["endpoints"][0]["url"] + "/leave", timeout=60)
    assert "started again" in until(services, "starting", said="the volume data is gone")["why"]
    services.call("stop", "echo")
    code, _, said = services.call("deploy", str(services.blueprint))
    assert code != 0
    assert "the volume data of echo is gone" in said
    assert "cordee service restore" in said


def test_why_a_program_ended_names_a_volume_that_is_full(services, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    place = ServiceLocation({"bind": "loopback", "volumes": {"data": {"path": "/data"}}}, services.folder)
    assert place.full == "; its volume data is full: /data"


def test_a_taken_port_and_a_missing_program_are_said(services):
    port = services.call("deploy", str(services.blueprint), "--json")[1]["endpoints"][0]["port"]
    code, _, said = services.call("deploy", str(services.blueprint), "--name", "second", "--port", f"http={port}")
    assert code == 2
    assert f"the port {port} is taken" in said
    assert not services.root("second").exists()
    path = services.write(
        BLUEPRINT.replace('"python"', '"no-such-program"').replace("purpose", 'install = ["pip install it"]\npurpose'),
        "gone.toml",
    )
    code, _, said = services.call("deploy", str(path), "--name", "third")
    assert code == 1
    assert "the program no-such-program cannot be started" in said
    assert "installed by: pip install it" in said
    assert "it printed" not in said
    path = services.write('print("it lacks a part"); raise SystemExit(1)', "broken.py")
    gone = services.write(
        (services.folder / "gone.toml").read_text().replace('"no-such-program", ', f'"python3", "{path}", '),
        "gone.toml",
    )
    code, _, said = services.call("deploy", str(gone), "--name", "fourth")
    assert code == 1
    assert "ended with exit code 1" in said
    assert "installed by: pip install it; it printed: it lacks a part" in said


def test_a_name_is_not_given_to_another_program_with_its_data(services):
    services.call("deploy", str(services.blueprint))
    services.call("stop", "echo")
    other = services.write(BLUEPRINT.replace('name = "echo"', 'name = "other"'), "other.toml")
    code, _, said = services.call("deploy", str(other), "--name", "echo")
    assert (code, "echo is a service of the blueprint echo, and has its data" in said) == (5, True), said


def test_a_refused_deploy_leaves_nothing_and_points_to_what_the_person_wrote(services):
    path = services.write(BLUEPRINT + "\n[need]\ngpus = 99\n")
    code, _, said = services.call("deploy", str(path))
    assert code == 2
    line = path.read_text().splitlines().index("gpus = 99") + 1
    assert f"{path}:{line}: the job asks for 99 GPUs" in said
    assert "change [need] gpus of the blueprint, or give --job need.gpus_per_node=VALUE" in said
    assert not services.root().exists()
    assert str(services.root()) not in said
    code, _, said = services.call(
        "deploy", str(services.blueprint), "--set", "greeting=a", "--job", "need.gpus_per_node=99"
    )
    assert code == 2
    assert "change what --job gives" in said
    assert str(services.root()) not in said
    assert not services.root().exists()


def test_a_program_that_ends_slowly_finishes_and_its_temporary_folder_goes_with_it(services):
    slow = """
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(6), open(os.path.join(data, "finished"), "w"), os._exit(0)))
open(os.path.join(data, "folder"), "w").write(sys.argv[5])
open(os.path.join(sys.argv[5], "socket"), "w")
http.server."""
    program = services.program.read_text().replace("import http.server, os", "import http.server, os, signal")
    services.program.write_text(slow.join(program.rsplit("\nhttp.server.", 1)))
    path = services.write(BLUEPRINT.replace('"{volume.data}"]', '"{volume.data}", "{temp}"]'))
    code, _, said = services.call("deploy", str(path))
    assert code == 0, said
    data = services.root() / "volumes" / "data"
    folder = Path((data / "folder").read_text())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "socket").exists()
    assert services.call("stop", "echo")[0] == 0
    assert (data / "finished").exists()
    assert not folder.exists()


def test_a_service_that_nobody_uses_ends_by_itself(services):
    services.call("deploy", str(services.blueprint), "--idle", "1s")
    assert until(services, "stopped")["why"] == "nobody was connected for 1 s"


def test_short_requests_keep_a_service_that_ends_when_nobody_uses_it(services):
    _, now, _ = services.call("deploy", str(services.blueprint), "--idle", "2s", "--json")
    token, deadline = (services.root() / "secrets" / "token").read_text(), time.monotonic() + 5
    while time.monotonic() < deadline:
        assert asked(now["endpoints"][0]["url"] + "/data", token)[0] == 200
        time.sleep(0.4)
    status = services.call("status", "echo", "--json")[1]["services"][0]
    assert status["unused_s"] < 2
    assert until(services, "stopped")["why"] == "nobody was connected for 2 s"


def test_a_service_whose_dependency_is_not_ready_is_refused(services):
    path = services.write(BLUEPRINT.replace("schema = 1", 'schema = 1\nafter = ["database"]'))
    code, _, said = services.call("deploy", str(path))
    assert code == 2
    assert "echo comes after database, which is not ready" in said


@pytest.mark.parametrize(
    ("name", "settings", "path"),
    [
        ("tensorboard", ["logdir={folder}"], "/data/runs"),
        ("jupyterlab", ["folder={folder}", "allow_root=true"], "/api/contents"),
        ("mlflow", [], "/api/2.0/mlflow/experiments/get?experiment_id=0"),
    ],
)
def test_a_real_service_of_the_catalogue_is_ready_and_answers_only_who_has_the_token(services, name, settings, path):
    given = [word.replace("{folder}", str(services.folder)) for word in settings]
    code, now, said = services.call("deploy", name, *(part for one in given for part in ("--set", one)), "--json")
    assert code == 0, said
    url, token = now["endpoints"][0]["url"] + path, Path(now["endpoints"][0]["token_file"]).read_text()
    assert asked(url)[0] in (401, 403)
    assert asked(url, "x" * len(token))[0] in (401, 403)
    basic = "Basic " + base64.b64encode(f"admin:{token}".encode()).decode()
    known = basic if name == "mlflow" else f"Bearer {token}"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": known}), timeout=20) as answer:
        assert answer.status == 200


def test_a_service_whose_run_still_writes_is_removed_all_the_same(services):
    folder = ServiceFolder(services.root())
    folder.make()

    def write() -> None:
        many = itertools.count()
        with contextlib.suppress(FileNotFoundError):
            for number in itertools.islice(many, 2001):
                (folder.runs / str(number)).touch()
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline:
                (folder.runs / str(next(many))).touch()

    late = threading.Thread(target=write)
    late.start()
    while not (folder.runs / "2000").exists():
        time.sleep(0.001)
    folder.remove()
    late.join()
    assert not folder.root.exists()
