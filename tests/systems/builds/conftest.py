"""Recipes over a root of busybox, built for real, as root and as a user without rights."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cordee.testing.containers import AS_USER
from cordee.testing.images import busybox_root, squashfs_of
from support.open_python import OpenPython

RECIPE = """
image = "made"

[build]
from = "{base}"
copy = ["files:/opt/files", "one.txt:/etc/"]
commands = ["echo two > /etc/two", "rm /etc/group"]
env = {{ GREETING = "hello" }}
"""


class Kitchen:
    """A folder with a recipe, a cache and a store of its own, where `cordee env` is called.

    Args:
        folder: of the recipe.
        python: who runs it.
        words: in front of the command line.
    """

    def __init__(self, folder: Path, base: str, python: OpenPython, words: list[str] | None = None) -> None:
        self.folder, self.python, self.words = folder, python, words or []
        (folder / "files").mkdir(parents=True)
        for name in ("b", "a", "c"):
            (folder / "files" / name).write_text(name)
        (folder / "files" / "c").chmod(0o700)
        (folder / "one.txt").write_text("one")
        self.write(RECIPE.format(base=base))
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "EDF_IMAGESTORE": str(folder / "store"),
            "PYTHONPATH": python.source,
            "CORDEE_CLUSTERS_PATH": str(folder / "clusters"),
        }
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 1000 if self.words else 0, 1000 if self.words else 0)

    def write(self, text: str) -> None:
        (self.folder / "env.toml").write_text(text)

    def change(self, before: str, after: str) -> None:
        text = (self.folder / "env.toml").read_text()
        assert before in text
        self.write(text.replace(before, after))

    def start(self, *words: str, env: Mapping[str, str] = {}, front: list[str] | None = None) -> subprocess.Popen[str]:
        command = [*(front or []), *self.words, self.python.executable, "-m", "cordee.cli", "env", *words]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; what is interrupted, by the test's own limit too, leaves nothing running."""
        process = self.start(*words, **options)
        try:
            out, said = process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(words, process.returncode, out, said)

    def build(self, *words: str, code: int = 0, **options: Any) -> dict[str, Any]:
        done = self.call("build", "env.toml", "--json", *words, **options)
        assert done.returncode == code, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    @property
    def cache(self) -> Path:
        return self.folder / "cache/cordee/build"


@pytest.fixture(scope="session")
def busybox_base() -> Iterator[Path]:
    """A squashfs file with busybox, which every user can read."""
    folder = Path(tempfile.mkdtemp(prefix="cordee-base-", dir="/var/tmp"))
    folder.chmod(0o755)
    squashfs_of(busybox_root(folder / "root"), folder / "base.sqsh")
    yield folder / "base.sqsh"
    shutil.rmtree(folder)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter."""
    # A name of letters and digits: buildah takes the path of a base for a reference, which may not end in `_`.
    folder = Path("/var/tmp", f"cordee-build-{secrets.token_hex(6)}")
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def kitchen(place: Path, busybox_base: Path, open_to_all: OpenPython) -> Kitchen:
    """A recipe of root's."""
    return Kitchen(place / "root", str(busybox_base), open_to_all)


@pytest.fixture
def user_kitchen(place: Path, busybox_base: Path, open_to_all: OpenPython) -> Kitchen:
    """The same recipe of a user without rights."""
    return Kitchen(place / "user", str(busybox_base), open_to_all, AS_USER)
