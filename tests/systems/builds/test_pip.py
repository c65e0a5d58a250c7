"""Packages of a Python index: locked by hash, installed without a network, the same files each time."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.open_python import OpenPython

from .conftest import Kitchen

pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).parents[3]
WHEEL = "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture(scope="module")
def python_base() -> Iterator[Path]:
    """A squashfs file with this Python, made from the machine's own files."""
    folder = Path(tempfile.mkdtemp(prefix="cordee-python-base-", dir="/var/tmp"))
    folder.chmod(0o755)
    script = ROOT / "examples" / "char-gpt" / "make_image.py"
    subprocess.run([sys.executable, script, folder / "base.sqsh"], check=True, capture_output=True)
    yield folder / "base.sqsh"
    shutil.rmtree(folder)


@pytest.fixture
def pip_kitchen(place: Path, python_base: Path, open_to_all: OpenPython) -> Kitchen:
    """A recipe with two packages of an index that is a folder."""
    found = Kitchen(place / "pip", str(python_base), open_to_all)
    index = found.folder / "index"
    index.mkdir()
    wheel(index, "rope", "1.0", "length = 60\n")
    wheel(index, "harness", "2.1", "import rope\n", requires="rope>=1")
    pip = Path(__import__("pip").__file__).parents[1]
    pack(index / "pip-99.0-py3-none-any.whl", pip)
    found.env |= {"PIP_FIND_LINKS": str(index), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    python = os.path.realpath(sys.executable)
    recipe = f'image = "made"\n[build]\nfrom = "{python_base}"\ncommands = ["echo two > /etc/two"]\n'
    found.write(f'{recipe}pip = {{ packages = ["harness"], python = "{python}" }}\n')
    return found


def wheel(index: Path, name: str, version: str, code: str, requires: str = "") -> Path:
    path = index / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}/__init__.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: MIT\n{needs}",
        f"{info}/WHEEL": WHEEL,
    }
    write(path, {key: value.encode() for key, value in files.items()}, info)
    return path


def pack(path: Path, site: Path) -> None:
    """Make a wheel of the pip that is installed here, under another version."""
    files = {
        str(each.relative_to(site)): each.read_bytes()
        for each in sorted((site / "pip").rglob("*"))
        if each.is_file() and each.suffix != ".pyc"
    }
    info = "pip-99.0.dist-info"
    files[f"{info}/METADATA"] = b"Metadata-Version: 2.1\nName: pip\nVersion: 99.0\n"
    files[f"{info}/WHEEL"] = WHEEL.encode()
    write(path, files, info)


def write(path: Path, files: dict[str, bytes], info: str) -> None:
    record = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
            archive.writestr(zipfile.ZipInfo(name), data)
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "\n".join([*record, f"{info}/RECORD,,", ""]))


def test_packages_are_locked_with_what_they_need_and_installed_without_a_network(pip_kitchen: Kitchen):
    locked = pip_kitchen.call("lock", "env.toml", "--json")
    assert locked.returncode == 0, locked.stderr
    packages = {each["name"]: each for each in json.loads(locked.stdout)["packages"]}
    assert {name: each["version"] for name, each in packages.items()} == {
        "pip": "99.0",
        "harness": "2.1",
        "rope": "1.0",
    }
    shutil.rmtree(pip_kitchen.folder / "index")
    made = pip_kitchen.build("--offline", "--locked")
    python = os.path.realpath(sys.executable)
    script = "import harness, rope; print(rope.length, rope.__cached__)"
    done = pip_kitchen.call("run", "env.toml", "--", python, "-c", script)
    assert done.returncode == 0, done.stderr
    length, cached = done.stdout.split()
    assert length == "60"
    assert pip_kitchen.call("run", "env.toml", "--", "test", "-f", cached).returncode == 0
    again = pip_kitchen.build("--offline", "--locked", "--check")
    assert again["digest"] == made["digest"]
    bill = json.loads((pip_kitchen.folder / "env.cdx.json").read_text())
    rope = next(each for each in bill["components"] if each["name"] == "rope")
    assert rope["hashes"] == [{"alg": "SHA-256", "content": packages["rope"]["hash"][7:]}]
    assert rope["licenses"] == [{"license": {"id": "MIT"}}]
    assert int(rope["properties"][0]["value"]) > 0


def test_an_index_that_gives_another_file_for_a_locked_name_is_refused(pip_kitchen: Kitchen):
    locked = json.loads(pip_kitchen.call("lock", "env.toml", "--json").stdout)
    rope = next(each for each in locked["packages"] if each["name"] == "rope")
    blob = pip_kitchen.cache / "blobs" / rope["hash"].replace(":", "-")
    wheel(pip_kitchen.folder / "index", "rope", "1.0", "length = 20  # cut\n")
    blob.unlink()
    error = pip_kitchen.build(code=1)["error"]
    assert "another file for rope 1.0 than was locked" in error["text"]
    assert error["allowed"] == rope["hash"]
    assert not blob.exists()
    offline = pip_kitchen.build("--offline", code=1)["error"]
    assert "not on this machine" in offline["text"]
    (pip_kitchen.folder / "index" / rope["file"]).unlink()
    gone = pip_kitchen.build(code=1)["error"]
    assert "rope 1.0 cannot be fetched" in gone["text"]


@pytest.mark.parametrize("name", ["rope", "pip"])
def test_a_file_of_the_cache_that_was_damaged_is_named_and_fetched_again(pip_kitchen: Kitchen, name: str):
    locked = json.loads(pip_kitchen.call("lock", "env.toml", "--json").stdout)
    package = next(each for each in locked["packages"] if each["name"] == name)
    blob = pip_kitchen.cache / "blobs" / package["hash"].replace(":", "-")
    with blob.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\xfe")
    error = pip_kitchen.build(code=1)["error"]
    assert f"the file of {name} {package['version']} in the cache of builds was damaged" in error["text"]
    pip_kitchen.build("--locked")


def test_a_package_that_is_not_there_is_named(pip_kitchen: Kitchen):
    pip_kitchen.change('"harness"', '"harness", "piton>=3"')
    error = pip_kitchen.build(code=1)["error"]
    assert "pip cannot resolve the packages" in error["text"]
    assert "piton" in error["given"]


@pytest.fixture
def second_index(pip_kitchen: Kitchen) -> Iterator[str]:
    """An index of its own with `rope` 3.0, which this machine is told nothing of; its URL."""
    folder = pip_kitchen.folder / "second"
    (folder / "rope").mkdir(parents=True)
    made = wheel(folder / "rope", "rope", "3.0", "length = 90\n")
    (folder / "rope" / "index.html").write_text(f'<a href="{made.name}">{made.name}</a>')
    handler = functools.partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        pip_kitchen.env |= {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": url + "none/"}
        pip_kitchen.env["PATH"] = f"{os.path.dirname(sys.executable)}:{pip_kitchen.env['PATH']}"
        yield url
        server.shutdown()


def rope_of(kitchen: Kitchen) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads((kitchen.folder / "env.lock.json").read_text())["packages"]
    return next(each for each in found if each["name"] == "rope")


@pytest.mark.parametrize("resolver", ["pip", "uv"])
@pytest.mark.parametrize("named_by", ["recipe", "requirements"])
def test_an_index_of_the_recipe_is_asked_to_choose_and_to_fetch(
    pip_kitchen: Kitchen, second_index: str, named_by: str, resolver: str
):
    (pip_kitchen.folder / "reqs.txt").write_text(f"--extra-index-url {second_index}\nrope>=2\n")
    more = 'requirements = "reqs.txt"' if named_by == "requirements" else f'indexes = ["{second_index}"]'
    pip_kitchen.change("{ packages", f'{{ {more}, resolver = "{resolver}", packages')
    pip_kitchen.build()
    assert rope_of(pip_kitchen)["version"] == "3.0"
    (pip_kitchen.cache / "blobs" / rope_of(pip_kitchen)["hash"].replace(":", "-")).unlink()
    shutil.rmtree(pip_kitchen.cache / "layers")
    pip_kitchen.build("--locked")
    assert second_index not in (pip_kitchen.folder / "env.lock.json").read_text()


def test_a_wheel_of_the_users_own_lies_in_a_folder_and_is_locked_anew_when_it_changes(pip_kitchen: Kitchen):
    own = pip_kitchen.folder / "dist"
    own.mkdir()
    wheel(own, "mine", "1.0", "import rope\n", requires="rope")
    pip_kitchen.change("{ packages = [", '{ indexes = ["./dist"], packages = ["mine", ')
    pip_kitchen.build()
    first = (pip_kitchen.folder / "env.lock.json").read_text()
    wheel(own, "mine", "1.0", "import rope  # changed\n", requires="rope")
    assert "the lock is older than the recipe" in pip_kitchen.build("--locked", code=1)["error"]["text"]
    pip_kitchen.build()
    second = (pip_kitchen.folder / "env.lock.json").read_text()
    assert second != first
    done = pip_kitchen.call("run", "env.toml", "--", os.path.realpath(sys.executable), "-c", "import mine")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("resolver", ["pip", "uv"])
def test_hashes_of_the_requirements_are_held_against_what_comes(pip_kitchen: Kitchen, resolver: str):
    pip_kitchen.env["PATH"] = f"{os.path.dirname(sys.executable)}:{pip_kitchen.env['PATH']}"
    right = hashlib.sha256((pip_kitchen.folder / "index" / "rope-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    pip_kitchen.change(
        '{ packages = ["harness"]', f'{{ requirements = "reqs.txt", constraints = "", resolver = "{resolver}"'
    )
    lines = "rope==1.0 \\\n    --hash=sha256:{} \\\n    --hash=sha256:{}\n"
    (pip_kitchen.folder / "reqs.txt").write_text(lines.format("0" * 64, "1" * 64))
    error = pip_kitchen.build(code=1)["error"]
    assert "rope" in error["text"] + error["given"]
    assert right in error["text"] + error["given"]
    (pip_kitchen.folder / "reqs.txt").write_text(lines.format("0" * 64, right))
    pip_kitchen.build()


@pytest.mark.parametrize(
    "line", ["-e .", "./mine.whl", "mine @ git+https://example.org/mine", "-r more.txt", "--find-links ./dist"]
)
def test_a_requirement_that_no_lock_can_hold_is_named_with_its_line(pip_kitchen: Kitchen, line: str):
    (pip_kitchen.folder / "reqs.txt").write_text(f"# exported\n{line}\nrope==1.0\n")
    pip_kitchen.change("{ packages", '{ requirements = "reqs.txt", packages')
    error = pip_kitchen.build(code=1)["error"]
    assert error["text"] == "reqs.txt:2: no lock can hold what this line names"
    assert error["given"] == line


@pytest.mark.campaign
def test_uv_chooses_what_pip_chooses(pip_kitchen: Kitchen):
    by_pip = json.loads(pip_kitchen.call("lock", "env.toml", "--json").stdout)["packages"]
    pip_kitchen.change("{ packages", '{ resolver = "uv", packages')
    pip_kitchen.env["PATH"] = f"{os.path.dirname(sys.executable)}:{pip_kitchen.env['PATH']}"
    done = pip_kitchen.call("lock", "env.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["packages"] == by_pip
