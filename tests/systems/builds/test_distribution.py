"""Debian for real: apt and pip with their own indexes, a registry, podman; as a user without rights."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.testing.containers import AS_USER
from cordee.testing.images import squashfs_of
from support.open_python import OpenPython

from .conftest import Kitchen

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]

RECIPE = """
image = "debian"
[build]
from = "{base}"
apt = ["python3", "cron"]
pip = ["six"]
commands = ["echo two > /etc/two"]
"""
SETTINGS = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""


@pytest.fixture(scope="module")
def debian_base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A squashfs file with a small Debian, which every user can read."""
    folder = Path("/var/tmp") / f"cordee-debian-{os.getpid()}"
    folder.mkdir(mode=0o755)
    subprocess.run(
        ["mmdebstrap", "--variant=apt", "--include=ca-certificates", "bookworm", folder / "root"],
        check=True,
        capture_output=True,
    )
    squashfs_of(folder / "root", folder / "base.sqsh")
    shutil.rmtree(folder / "root")
    yield folder / "base.sqsh"
    shutil.rmtree(folder)


@pytest.fixture
def user_debian(place: Path, debian_base: Path, open_to_all: OpenPython) -> Kitchen:
    found = Kitchen(place / "user", str(debian_base), open_to_all, AS_USER)
    found.write(RECIPE.format(base=debian_base))
    return found


@pytest.fixture
def registry(real: None, tmp_path: Path) -> Iterator[str]:
    """The address of a registry of Debian's package, on the loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = tmp_path / "registry.yml"
    folder = tmp_path / "registry"
    settings.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for _ in range(100):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"localhost:{port}"
    process.kill()
    process.wait()


def test_a_user_builds_debian_packages_twice_to_one_digest_and_all_of_them_are_named(
    user_debian: Kitchen, place: Path, debian_base: Path, open_to_all: OpenPython
):
    assert user_debian.call("lock", "env.toml").returncode == 0
    first = user_debian.build("--offline", "--locked")
    roots = Kitchen(place / "root", str(debian_base), open_to_all)
    for name in ("env.toml", "env.lock.json"):
        shutil.copyfile(user_debian.folder / name, roots.folder / name)
    assert roots.build("--locked")["digest"] == first["digest"]

    listed = user_debian.call("run", "env.toml", "--", "dpkg-query", "-W", "-f", "${Package} ${Version}\\n")
    wanted = {tuple(line.split(" ", 1)) for line in listed.stdout.splitlines()} | {("six", "1.17.0")}
    bill = json.loads((user_debian.folder / "env.cdx.json").read_text())
    found = {(each["name"], each["version"]) for each in bill["components"]}
    assert {name for name, _ in wanted} == {name for name, _ in found}
    assert {pair for pair in wanted if pair[0] != "six"} <= found
    assert all(each.get("licenses") for each in bill["components"] if each["name"] in ("cron", "six", "python3.11"))


def test_an_index_that_gives_another_package_for_a_locked_name_is_refused(user_debian: Kitchen):
    assert user_debian.call("lock", "env.toml").returncode == 0
    path = user_debian.folder / "env.lock.json"
    lock = json.loads(path.read_text())
    cron = next(each for each in lock["packages"] if each["name"] == "cron")
    cron["hash"] = f"sha256:{64 * 'a'}"
    path.write_text(json.dumps(lock))
    error = user_debian.build(code=1)["error"]
    assert "another file for cron" in error["text"]
    assert error["allowed"] == cron["hash"]
    cron["url"] = cron["url"].replace("cron_", "crown_")
    path.write_text(json.dumps(lock))
    assert f"cron {cron['version']} cannot be fetched" in user_debian.build(code=1)["error"]["text"]


def test_an_image_goes_to_a_registry_and_from_there_into_podman(
    user_debian: Kitchen, registry: str, tmp_path: Path, place: Path
):
    made = user_debian.build()
    pushed = user_debian.call("push", "env.toml", f"{registry}/team/debian:1", "--json")
    assert pushed.returncode == 0, pushed.stderr
    assert json.loads(pushed.stdout)["digest"] == made["digest"]
    kept = json.loads((user_debian.folder / "env.lock.json").read_text())["image"]["pushed"]
    assert kept == f"{registry}/team/debian@{made['digest']}"
    (tmp_path / "containers.conf").write_text(SETTINGS)
    env = {**os.environ, "CONTAINERS_CONF": str(tmp_path / "containers.conf")}
    words = ["podman", "--root", str(tmp_path / "storage"), "--runroot", str(place / "run"), "run", "--rm"]
    script = "cat /etc/two; stat -c '%u:%g %a' /usr/bin/crontab; python3 -c 'import six; print(six.__version__)'"
    name = f"{registry}/team/debian@{made['digest']}"
    done = subprocess.run(
        [*words, "--tls-verify=false", "--network=none", name, "sh", "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    two, crontab, six = done.stdout.splitlines()
    assert (two, six.partition(".")[0]) == ("two", "1")
    group = next(line.split(":")[2] for line in _groups(user_debian) if line.startswith("crontab:"))
    assert crontab == f"0:{group} 2755"


def _groups(kitchen: Kitchen) -> list[str]:
    return kitchen.call("run", "env.toml", "--", "cat", "/etc/group").stdout.splitlines()


def test_a_containerfile_becomes_an_image_like_others(place: Path, debian_base: Path, open_to_all: OpenPython):
    found = Kitchen(place / "file", str(debian_base), open_to_all)
    found.write(RECIPE.format(base=debian_base).replace('"debian"', '"./base.sqsh"'))
    found.build("--oci", "base")
    (found.folder / "Containerfile").write_text(f"FROM oci:{found.folder}/base\nRUN echo three > /etc/three\n")
    found.write('image = "filed"\n[build]\ncontainerfile = "Containerfile"\n')
    first = found.build()
    assert found.call("run", "env.toml", "--", "cat", "/etc/three").stdout == "three\n"
    assert found.build("--locked")["digest"] == first["digest"]
    assert "reach the network" in found.build("--offline", code=1)["error"]["text"]


def test_two_hundred_thousand_files_are_copied_into_an_image(kitchen: Kitchen):
    many = kitchen.folder / "many"
    for folder in range(200):
        (many / str(folder)).mkdir(parents=True)
        for name in range(1000):
            (many / str(folder) / str(name)).touch()
    kitchen.change('"files:/opt/files"', '"many:/opt/many"')
    kitchen.build()
    done = kitchen.call("run", "env.toml", "--", "sh", "-c", "find /opt/many -type f | wc -l")
    assert done.stdout.strip() == "200000"
