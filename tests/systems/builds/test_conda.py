"""Packages of conda channels: locked by URL and hash, put together for their folder, the same files each time."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.builds.layout import link_or_copy
from cordee.systems.builds.parts import conda

from .conftest import Kitchen

# Where a package was built, in place of which the folder of the image has to stand.
BUILT = "/opt/" + "placehold_" * 20
Files = Mapping[str, tuple[bytes, int]]


class Channel:
    """A conda channel in a folder, with packages made by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, dict[str, Any]] = {}
        (folder / "noarch").mkdir(parents=True)

    def add(self, name: str, version: str, files: Files, *needs: str) -> Path:
        about = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": list(needs)}
        about |= {"subdir": "noarch", "noarch": "generic", "license": "MIT"}
        info = {
            "info/index.json": about,
            "info/paths.json": {"paths": list(map(_path, *zip(*files.items(), strict=True)))},
        }
        info["info/paths.json"]["paths_version"] = 1
        stem = f"{name}-{version}-0"
        path = self.folder / "noarch" / f"{stem}.conda"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
            archive.writestr(f"pkg-{stem}.tar.zst", _tar(files))
            told = {each: (json.dumps(document).encode(), 0o644) for each, document in info.items()}
            archive.writestr(f"info-{stem}.tar.zst", _tar(told))
        data = path.read_bytes()
        self.records[path.name] = {**about, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        index = {"info": {"subdir": "noarch"}, "packages": {}, "packages.conda": self.records}
        (self.folder / "noarch" / "repodata.json").write_text(json.dumps(index))
        return path


def _path(name: str, given: tuple[bytes, int]) -> dict[str, Any]:
    data = given[0]
    found = {
        "_path": name,
        "path_type": "hardlink",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size_in_bytes": len(data),
    }
    if BUILT.encode() in data:
        found |= {"prefix_placeholder": BUILT, "file_mode": "binary" if b"\0" in data else "text"}
    return found


def _tar(files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, (data, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), mode, 1_700_000_000
            tar.addfile(member, io.BytesIO(data))
    return subprocess.run(["zstd", "-q", "-c"], input=out.getvalue(), capture_output=True, check=True).stdout


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    """A channel with a rope, and a harness that needs it."""
    made = Channel(tmp_path / "channel")
    rope = {
        "bin/rope": (f"#!/bin/sh\ncat {BUILT}/share/rope\n".encode(), 0o755),
        "share/rope": (b"60 m\n", 0o644),
        "lib/librope.so": (b"\x7fELF\0" + BUILT.encode() + b"/share\0\0end", 0o755),
    }
    made.add("rope", "1.0", rope)
    made.add("rope", "2.0", {"share/rope": (b"70 m\n", 0o644)}, "__glibc >=99")
    linked = b'echo "$PKG_NAME $PKG_VERSION $(cat "$PREFIX/share/rope")" > "$PREFIX/knot"\n'
    made.add("harness", "2.1", {"bin/.harness-post-link.sh": (linked, 0o755)}, "rope >=1")
    return made


@pytest.fixture(autouse=True)
def rattler(place: Path, kitchen: Kitchen, user_kitchen: Kitchen) -> None:
    """The library, where every user may read it."""
    shutil.copytree(Path(__import__("rattler").__file__).parent, place / "open" / "rattler", copy_function=_shared)
    for each in (kitchen, user_kitchen):
        each.env["PYTHONPATH"] += f":{place}/open"


def _shared(source: str, target: str) -> None:
    link_or_copy(Path(source), Path(target))


@pytest.fixture
def served(channel: Channel) -> Iterator[str]:
    """Its URL."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(channel.folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def with_conda(kitchen: Kitchen, channel: str, words: str = "") -> Kitchen:
    text = (kitchen.folder / "env.toml").read_text()
    kitchen.write(f'{text}\n[build.conda]\npackages = ["harness"]\nchannels = ["{channel}"]\n{words}')
    return kitchen


@pytest.mark.usefixtures("real")
def test_packages_are_locked_with_what_they_need_and_put_together_without_their_channel(
    user_kitchen: Kitchen, kitchen: Kitchen, channel: Channel, served: str
):
    locked = with_conda(user_kitchen, served).call("lock", "env.toml", "--json")
    assert locked.returncode == 0, locked.stderr
    packages = {each["name"]: each for each in json.loads(locked.stdout)["packages"]}
    assert {name: each["version"] for name, each in packages.items()} == {"harness": "2.1", "rope": "1.0"}
    assert packages["rope"]["url"] == f"{served}/noarch/rope-1.0-0.conda"
    assert packages["rope"]["hash"] == f"sha256:{channel.records['rope-1.0-0.conda']['sha256']}"
    shutil.rmtree(channel.folder)
    made = user_kitchen.build("--offline", "--locked", front=["sh", "-c", 'umask 077; exec "$@"', "sh"])
    done = user_kitchen.call("run", "env.toml", "--", "sh", "-c", "rope; cat /opt/conda/knot; cat /opt/conda/lib/*.so")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("60 m\nharness 2.1 60 m\n\x7fELF\0/opt/conda/share\0")
    bill = json.loads((user_kitchen.folder / "env.cdx.json").read_text())
    rope = next(each for each in bill["components"] if each["name"] == "rope")
    assert rope["hashes"] == [{"alg": "SHA-256", "content": packages["rope"]["hash"][7:]}]
    assert int(rope["properties"][0]["value"]) > 0
    assert rope["licenses"] == [{"license": {"id": "MIT"}}]
    unused = user_kitchen.call("unused", "env.toml", "--json", "--", "rope")
    uses = {each["name"]: each for each in json.loads(unused.stdout)["packages"]}
    assert {name: uses[name]["opened_files"] for name in ("rope", "harness")} == {"rope": 2, "harness": 0}
    # Root, in another folder, with nothing of it but the lock and the files.
    with_conda(kitchen, served)
    shutil.copyfile(user_kitchen.folder / "env.lock.json", kitchen.folder / "env.lock.json")
    shutil.copytree(user_kitchen.cache / "blobs", kitchen.cache / "blobs")
    again = kitchen.build("--offline")
    assert [each["digest"] for each in again["layers"]] == [each["digest"] for each in made["layers"]]


@pytest.mark.usefixtures("real")
def test_a_channel_that_gives_another_file_for_a_locked_name_is_refused(
    kitchen: Kitchen, channel: Channel, served: str
):
    with_conda(kitchen, served)
    locked = json.loads(kitchen.call("lock", "env.toml", "--json").stdout)
    rope = next(each for each in locked["packages"] if each["name"] == "rope")
    (kitchen.cache / "blobs" / rope["hash"].replace(":", "-")).unlink()
    path = channel.add("rope", "1.0", {"share/rope": (b"20 m, cut\n", 0o644)})
    error = kitchen.build(code=1)["error"]
    assert "another file for rope 1.0 than was locked" in error["text"]
    assert error["allowed"] == rope["hash"]
    path.unlink()
    gone = kitchen.build(code=1)["error"]
    assert "rope 1.0 cannot be fetched" in gone["text"]
    offline = kitchen.build("--offline", code=1)["error"]
    assert "not on this machine" in offline["text"]


@pytest.mark.usefixtures("real")
def test_what_the_image_or_the_channel_does_not_have_is_named(kitchen: Kitchen, channel: Channel):
    with_conda(kitchen, str(channel.folder), 'prefix = "/opt/files"\n')
    kitchen.change('["harness"]', '["rope>=2"]')
    error = kitchen.build(code=1)["error"]
    assert "__glibc" in error["given"]
    assert "which is not glibc" in error["allowed"]
    kitchen.change('["rope>=2"]', '["piton"]')
    assert "piton" in str(kitchen.build(code=1)["error"])
    kitchen.change(f'"{channel.folder}"', '"https://me:secret@site/t/x"')
    assert "has a login in it" in str(kitchen.build(code=2)["error"])


def test_a_machine_without_rattler_says_what_to_install(kitchen: Kitchen, channel: Channel, place: Path):
    (place / "rattler.py").write_text("raise ImportError('not here')\n")
    kitchen.env["PYTHONPATH"] = f"{place}:{kitchen.env['PYTHONPATH']}"
    error = with_conda(kitchen, str(channel.folder)).build(code=1)["error"]
    assert "py-rattler, which is not installed" in error["text"]
    assert error["next"] == "pip install 'cordee[conda]'"


def test_packages_are_put_together_where_nothing_of_the_machine_can_be_written(
    user_kitchen: Kitchen, channel: Channel, place: Path
):
    code = """import os, sys
if "/run/cordee/put_together.py" in sys.orig_argv:
    for path in (__file__, os.path.expanduser("~/evil"), "/etc/evil", "/run/cordee/order"):
        try:
            open(path, "a").close()
            print("written:", path, file=sys.stderr)
        except OSError as error:
            print(error.strerror, file=sys.stderr)
    os._exit(1)
"""
    (place / "open" / "sitecustomize.py").write_text(code)
    os.chown(place / "open" / "sitecustomize.py", 1000, 1000)
    with_conda(user_kitchen, str(channel.folder))
    shutil.copytree(channel.folder, user_kitchen.folder / "channel")
    user_kitchen.change(str(channel.folder), "./channel")
    said = user_kitchen.build(code=1)["error"]["given"].split("\n")
    assert said[1] == "Read-only file system"
    assert [line for line in said if line.startswith("written")][-1] == "written: /run/cordee/order"
    assert not (user_kitchen.folder / "home/evil").exists()
    assert not Path("/etc/evil").exists()


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A channel that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


def url_of(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_channel_that_says_nothing_is_not_waited_for(
    silent: socket.socket, monkeypatch: pytest.MonkeyPatch, place: Path
):
    monkeypatch.setattr(conda, "_SILENT_S", 2.0)
    with pytest.raises(RuntimeError, match="the channel has sent nothing for 2 s"):
        conda._in_child(conda._chosen, [url_of(silent)], ("rope",), "2.36", place / "cache")
    (error,) = conda._in_child(conda._fetched, [(f"{url_of(silent)}/rope.conda", place / "rope.conda")])
    assert error == "the channel has sent nothing for 2 s"


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_build_that_is_ended_while_it_resolves_leaves_nothing_running(
    kitchen: Kitchen, silent: socket.socket, number: int
):
    process = with_conda(kitchen, url_of(silent)).start("lock", "env.toml")
    asking, _ = silent.accept()
    process.send_signal(number)
    process.communicate(timeout=60)
    asking.settimeout(60)
    with asking, contextlib.suppress(ConnectionResetError):
        while asking.recv(1 << 16):  # who asks holds the connection for as long as it lives
            pass
