"""A service in a container of podman: closed, kept, brought back, and gone when it is stopped."""

from __future__ import annotations

import base64
import subprocess
import urllib.request

import pytest
from tests.systems.services.test_deployment import asked

from cordee.testing.images import busybox_root

pytestmark = pytest.mark.usefixtures("real")

IMAGE = "localhost/cordee-service:1"
BLUEPRINT = f"""
schema = 1
name = "web"
image = "{IMAGE}"
image_argv = ["httpd", "-f", "-p", "{{port.http}}", "-h", "{{volume.data}}", "-c", "{{file.httpd.conf}}"]
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


@pytest.fixture
def image(tmp_path):
    root = busybox_root(tmp_path / "root")
    tar = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
    subprocess.run(["podman", "import", "-", IMAGE], stdin=tar.stdout, check=True, capture_output=True)
    tar.wait()
    yield IMAGE
    subprocess.run(["podman", "rmi", "--force", IMAGE], check=True, capture_output=True)


def containers() -> str:
    return subprocess.run(["podman", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True).stdout


@pytest.mark.gate
def test_a_service_in_a_container_is_closed_and_its_data_comes_back(services, image):
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


def test_an_image_that_is_gone_is_said(services, image):
    text = BLUEPRINT.replace(IMAGE, "localhost/no-such-image:9")
    code, _, _ = services.call("deploy", str(services.write(text, "web.toml")), "--wait", "20s")
    assert code == 1
    assert "no-such-image" in services.call("logs", "web")[2]
