"""A service in a container of podman: closed, kept, brought back, moved, and gone when it is stopped; as root, and as a user without rights."""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from tests.systems.services.test_deployment import asked, until

from cordee.core.web import token_guard
from cordee.faces.cli import main
from cordee.systems.services.node.container import PodmanMachine
from cordee.testing.containers import UID
from cordee.testing.images import busybox_root
from cordee.testing.patience import PatientWait
from support.podman import import_image, python_root, rootless

pytestmark = pytest.mark.usefixtures("real")

IMAGE = "localhost/cordee-service:1"
PYTHON_IMAGE = "localhost/cordee-service-python:1"
BLUEPRINT = f"""
schema = 1
name = "web"
image = "{IMAGE}"
image_argv = ["httpd", "-f", "-p", "{{port.http}}", "-h", "{{volume.data}}", "-c", "{{file.httpd.conf}}"]
stop = "1s"
[ports.http]
port = 8080
[ready]
[closed]
path = "/shown/value"
[volumes.data]
path = "/data"
[secrets.password]
[files]
"httpd.conf" = "/shown:admin:{{value.password}}"
"""
# It asks nobody, and says when it was asked to end.
SERVE = """
import http.server, os, signal, sys, time
host, port, data = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def end(*_):
    time.sleep(float(os.environ.get("LAST_S", "0")))
    open(os.path.join(data, "ended"), "a").write("x")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/die":
            os._exit(9)
        text = open(os.path.join(data, "value")).read() if self.path == "/value" else "well"
        self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *words): pass
if not os.path.exists(os.path.join(data, "value")):
    open(os.path.join(data, "value"), "w").write("42")
http.server.ThreadingHTTPServer((host, port), Handler).serve_forever()
"""
GUARDED = f"""
schema = 1
name = "shown"
argv = ["python3", "./serve.py", "{{host}}", "{{port.http}}", "{{volume.data}}"]
image = "{PYTHON_IMAGE}"
image_argv = ["python3", "/srv/serve.py", "{{host}}", "{{port.http}}", "{{volume.data}}"]
guard = "token"
stop = "15s"
[ports.http]
port = 8080
[ready]
path = "/health"
every = "0.2s"
[closed]
path = "/value"
[volumes.data]
path = "/data"
[secrets.token]
[env]
LAST_S = "0"
[client]
SHOWN = "{{host}}:{{port.http}} {{url.http}}"
DATA = "{{volume.data}} {{secret.token}}"
"""


@pytest.fixture
def image(tmp_path):
    import_image(busybox_root(tmp_path / "root"), IMAGE)
    yield IMAGE
    remove(IMAGE)


@pytest.fixture(scope="module")
def python_image_root(tmp_path_factory):
    root = python_root(tmp_path_factory.mktemp("image") / "root")
    (root / "srv").mkdir()
    (root / "srv/serve.py").write_text(SERVE)
    return root


@pytest.fixture
def python_image(python_image_root):
    import_image(python_image_root, PYTHON_IMAGE)
    yield PYTHON_IMAGE
    remove(PYTHON_IMAGE)


def remove(name: str) -> None:
    subprocess.run(["podman", "rmi", "--force", name], check=True, capture_output=True)


def podman(*words: str) -> str:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=False).stdout


def containers() -> str:
    return podman("ps", "--all", "--format", "{{.Names}}")


def token_of(services, name: str = "shown") -> str:
    return (services.root(name) / "secrets" / "token").read_text()


@pytest.mark.gate
def test_a_service_in_a_container_is_closed_and_its_data_comes_back(image, services):
    code, now, said = services.call("deploy", str(services.write(BLUEPRINT, "web.toml")), "--json")
    assert code == 0, said
    assert now["target"] == "podman"
    place = services.root("web") / "volumes" / "data" / "shown"
    place.mkdir()
    (place / "value").write_text("42")
    url, password = now["endpoints"][0]["url"], (services.root("web") / "secrets" / "password").read_text()
    assert asked(f"{url}/shown/value")[0] == 401
    assert value(url, password) == b"42"
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert password not in shown

    file = services.folder / "web.tar"
    assert services.call("backup", "web", "-o", str(file))[0] == 0
    code, now, said = services.call("restore", str(file), "--name", "other", "--json")
    assert code == 0, said
    assert value(now["services"][0]["endpoints"][0]["url"], password) == b"42"
    assert "cordee-other-" in containers()
    services.call("stop", "other")
    services.call("stop", "web")
    assert "cordee-web-" not in containers()
    assert "cordee-other-" not in containers()


def value(url: str, password: str) -> bytes:
    basic = base64.b64encode(f"admin:{password}".encode()).decode()
    request = urllib.request.Request(f"{url}/shown/value", headers={"Authorization": f"Basic {basic}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def test_the_guard_is_in_front_in_an_image_and_a_program_that_ends_slowly_leaves_nothing(python_image, services):
    before = podman("volume", "ls", "--quiet"), podman("network", "ls", "--quiet")
    text = GUARDED.replace('LAST_S = "0"', 'LAST_S = "5"')
    code, now, said = services.call("deploy", str(services.write(text, "shown.toml")), "--target", "podman", "--json")
    assert code == 0, said
    url, token = now["endpoints"][0]["url"], token_of(services)
    assert asked(f"{url}/value") == (401, "")
    assert asked(f"{url}/value", token) == (200, "42")
    host = url.removeprefix("http://")
    variables = Path(now["client_file"]).read_text()
    assert f"SHOWN='{host} {url}'" in variables
    assert f"DATA='{services.root('shown')}/volumes/data {services.root('shown')}/secrets/token'" in variables
    shown = json.loads(podman("inspect", containers().split()[0]))[0]["HostConfig"]
    assert (shown["Memory"], shown["NanoCpus"]) == (1 << 30, 10**9)

    pid = told_of(now)["pid"]
    with pytest.raises(OSError):
        asked(f"{url}/die", token)
    until_again(now, pid)
    assert asked(f"{url}/value", token) == (200, "42")
    code, _, said = services.call("stop", "shown")
    assert code == 0, said
    assert (services.root("shown") / "volumes/data/ended").read_text() == "x"
    assert "cordee-shown-" not in containers()
    assert not Path(told_of(now)["temp"]).exists()
    assert (podman("volume", "ls", "--quiet"), podman("network", "ls", "--quiet")) == before
    assert services.call("stop", "shown", "--remove")[0] == 0
    assert not services.root("shown").exists()


def test_what_was_killed_leaves_a_container_that_stop_ends(python_image, services):
    file = services.write(GUARDED, "shown.toml")
    _, now, said = services.call("deploy", str(file), "--target", "podman", "--json")
    assert now["ready"], said
    first = told_of(now)
    os.kill(parent(first["pid"]), signal.SIGKILL)  # the host: another one takes the container's place
    until_again(now, first["pid"])
    assert containers().count("cordee-shown-") == 1
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        if now["run"].encode() in about(pid) and pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert "cordee-shown-" in containers()
    with pytest.raises(SystemExit):
        main(["cancel", "--now", now["run"]])
    code, _, said = services.call("stop", "shown")
    assert code == 0, said
    assert "cordee-shown-" not in containers()
    assert not Path(told_of(now)["temp"]).exists()
    assert not Path(first["temp"]).exists()


def told_of(now: dict) -> dict:
    return json.loads((Path(now["run"]) / "services" / "shown.json").read_text())


def until_again(now: dict, pid: int) -> None:
    """Wait until another program is ready than the one with this pid."""
    patience = PatientWait(60.0)
    while (told := told_of(now))["pid"] == pid or not told["ready"]:
        assert not patience.over(), told
        time.sleep(0.1)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def about(pid: int) -> bytes:
    """Return command line and environment of a process that is no container's."""
    try:
        place = Path(f"/proc/{pid}")
        own = place.joinpath("comm").read_text().strip() not in ("podman", "conmon")
        return place.joinpath("cmdline").read_bytes() + place.joinpath("environ").read_bytes() if own else b""
    except OSError:
        return b""


def test_nobody_connected_ends_one_of_root_and_a_connection_keeps_it(python_image, services):
    file = services.write(GUARDED, "shown.toml")
    _, now, said = services.call("deploy", str(file), "--target", "podman", "--idle", "3s", "--json")
    assert now["ready"], said
    host, _, port = now["endpoints"][0]["url"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))):
        time.sleep(6.0)
        assert services.call("status", "shown", "--json")[1]["services"][0]["state"] == "ready"
    assert until(services, "stopped", "shown")["why"] == "nobody was connected for 3 s"


def test_commands_of_a_blueprint_run_in_its_container_and_a_stranger_has_no_credentials(python_image, services):
    test = "import os, sys; assert os.path.isdir('/srv'); "
    lines = [
        (
            "[ready]\npath",
            f'[ready]\ncommand = ["python3", "-c", "{test} assert os.environ[\'SECRET\']", "{{port.http}}"]\nx',
        ),
        (
            '[closed]\npath = "/value"',
            f'[closed]\ncommand = ["python3", "-c", "{test} sys.exit(not os.environ.get(\'SECRET\'))"]',
        ),
        ("[secrets.token]", '[secrets.token]\nenv = "SECRET"'),
    ]
    text = GUARDED.replace('x = "/health"\n', "")
    for old, new in lines:
        text = text.replace(old, new)
    text = text.replace('x = "/health"\n', "")
    text += '[backup]\nbefore = ["sh", "-c", "echo {port.http} > {volume.data}/before"]\nafter = ["sh", "-c", "cat /srv/serve.py > {volume.data}/after"]\n'
    code, _, said = services.call("deploy", str(services.write(text, "shown.toml")), "--target", "podman", "--json")
    assert code == 0, said
    file = services.folder / "shown.tar"
    code, written, said = services.call("backup", "shown", "-o", str(file), "--json")
    assert (code, written.get("stopped")) == (0, False), said
    code, _, said = services.call("restore", str(file), "--name", "other", "--json")
    assert code == 0, said
    data = services.root("other") / "volumes" / "data"
    assert (data / "before").read_text() == "8080\n"
    assert (data / "after").read_text() == SERVE


def test_a_service_moves_into_a_container_and_back_with_data_of_its_owner(python_image, services):
    (services.folder / "serve.py").write_text(SERVE)
    code, _, said = services.call("deploy", str(services.write(GUARDED, "shown.toml")), "--json")
    assert code == 0, said
    data = services.root("shown") / "volumes" / "data" / "value"
    data.write_text("43")
    code, _, said = services.call("move", "shown", "--target", "podman")
    assert code == 0, said
    assert data.stat().st_uid == UID
    assert services.call("backup", "shown", "-o", str(services.folder / "shown.tar"))[0] == 0
    code, _, said = services.call("move", "shown", "--target", "process")
    assert code == 0, said
    assert (data.read_text(), data.stat().st_uid) == ("43", 0)
    assert (services.root("shown") / "secrets" / "token").stat().st_uid == 0


@pytest.mark.gate
def test_what_podman_cannot_run_is_refused_before_anything_starts(image, services, tmp_path, monkeypatch):
    def refused(text: str) -> str:
        code, _, said = services.call("deploy", str(services.write(text, "web.toml")), "--target", "podman")
        assert code == 2, said
        assert not services.root("web").exists()
        return said

    gone = refused(BLUEPRINT.replace(IMAGE, "localhost/no-such-image:9"))
    assert "the image localhost/no-such-image:9 is not on this machine" in gone
    said = refused(
        BLUEPRINT.replace("image_argv", "argv")
        .replace("[secrets.password]", "[secrets.password]\n[secrets.token]")
        .replace('stop = "1s"', 'guard = "token"')
    )
    assert "only the image says which" in said
    assert "add image_argv" in said
    broken = tmp_path / "bin" / "podman"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'Error: default OCI runtime \"runc\" not found' >&2\nexit 125\n")
    broken.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
        assert 'podman does not work here: Error: default OCI runtime "runc" not found' in refused(BLUEPRINT)


@pytest.mark.gate
def test_what_a_user_without_rights_lacks_is_named(tmp_path, monkeypatch):
    about = {"idMappings": {"uidmap": [{"size": 1}], "gidmap": [{"size": 1}]}, "slirp4netns": {"executable": ""}}
    program = tmp_path / "podman"
    program.write_text('#!/bin/sh\necho "$ABOUT"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: UID)

    def lack() -> str:
        monkeypatch.setenv("ABOUT", json.dumps({"host": about}))
        found = PodmanMachine().lacks({"user": 1000, "image": "registry.example/a:1"})
        return found.text if found else ""

    assert "1 user ids for this user" in lack()
    for kind in ("uidmap", "gidmap"):
        about["idMappings"][kind].append({"size": 65536})
    assert "no network for containers of a user" in lack()
    about["slirp4netns"]["executable"] = "/usr/bin/slirp4netns"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "/dev/net/tun cannot be opened" in lack()
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert lack() == ""


def test_an_image_that_cannot_be_pulled_and_one_without_python_are_said(image, services):
    text = BLUEPRINT.replace(IMAGE, "127.0.0.1:1/no-such-image:9")
    code, _, said = services.call("deploy", str(services.write(text, "web.toml")), "--wait", "60s")
    assert (code, "its image 127.0.0.1:1/no-such-image:9 cannot be pulled" in said) == (1, True), said
    text = GUARDED.replace(PYTHON_IMAGE, IMAGE)
    code, _, said = services.call(
        "deploy", str(services.write(text, "shown.toml")), "--target", "podman", "--wait", "60s"
    )
    assert (code, "Cordée's guard runs in the image's own python3" in said) == (1, True), said


@pytest.mark.gate
def test_the_guard_runs_on_the_python_of_old_images():
    ast.parse(Path(token_guard.__file__).read_text(), feature_version=(3, 8))


def test_a_user_without_rights_has_the_same(python_image_root, open_to_all):
    with rootless() as user:
        import_image(python_image_root, PYTHON_IMAGE, user.words())
        (user.home / "serve.py").write_text(SERVE)
        (user.home / "shown.toml").write_text(
            GUARDED.replace('"python3", "./serve', f'"{open_to_all.executable}", "./serve')
        )
        data, root = user.home / "services/shown/volumes/data/value", user.home / "services/shown"

        def call(*words: str) -> dict:
            env = {"CORDEE_SERVICES": str(user.home / "services"), "PYTHONPATH": open_to_all.source}
            done = user.run(open_to_all.executable, "-m", "cordee.faces.cli", "service", *words, "--json", **env)
            assert done.returncode == 0, done.stdout + done.stderr
            return json.loads(done.stdout) if done.stdout else {}

        try:
            now = call("deploy", str(user.home / "shown.toml"), "--target", "podman")
            url, token = now["endpoints"][0]["url"], (root / "secrets/token").read_text()
            assert asked(f"{url}/value") == (401, "")
            assert asked(f"{url}/value", token) == (200, "42")
            with pytest.raises(OSError):
                asked(f"{url}/die", token)
            while call("status")["services"][0]["state"] != "ready":
                time.sleep(0.2)
            assert data.stat().st_uid == UID
            call("backup", "shown", "--no-secrets", "-o", str(user.home / "shown.tar"))
            call("move", "shown", "--target", "process")
            call("move", "shown", "--target", "podman")
            call("restore", str(user.home / "shown.tar"), "--name", "other", "--secrets", str(root / "secrets"))
            call("stop", "other", "--remove")
        finally:
            call("stop", "shown", "--remove")
        assert not root.exists()
        assert user.run("podman", "ps", "--all", "--quiet").stdout == ""
        assert user.run("podman", "volume", "ls", "--quiet").stdout == ""
