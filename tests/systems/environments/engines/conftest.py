"""Roots to run commands in, as root and as a user without rights."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EngineLaunch
from cordee.systems.environments.node.engines.namespace import boot as namespace_boot
from cordee.systems.environments.node.engines.podman import boot as podman_boot
from cordee.testing.containers import AS_USER, ENV, environment_in
from cordee.testing.images import busybox_root, squashfs_of
from support.open_python import OpenPython


@pytest.fixture(scope="session")
def images() -> Iterator[Path]:
    """A folder that every user can read, with `root`, a folder, and `root.sqsh`."""
    folder = Path(tempfile.mkdtemp(prefix="cordee-engine-"))
    folder.chmod(0o755)
    squashfs_of(busybox_root(folder / "root"), folder / "root.sqsh")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def place(images: Path) -> Iterator[Path]:
    """A folder of one test that every user can write."""
    folder = Path(tempfile.mkdtemp(prefix="place-", dir=images))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_user(open_to_all: OpenPython, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that start a command as a user; from here on engines start with a Python that this user may run."""
    monkeypatch.setattr(sys, "executable", open_to_all.executable)
    for module in (namespace_boot, podman_boot):
        monkeypatch.setattr(module, "__file__", f"{open_to_all.source}/{module.__name__.replace('.', '/')}.py")
    return AS_USER


@pytest.fixture(params=["root", "user"])
def who(request: pytest.FixtureRequest) -> list[str]:
    """The words that start a command as root, or as a user."""
    return [] if request.param == "root" else request.getfixturevalue("as_user")


@pytest.fixture
def run(
    images: Path, who: list[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in the namespace engine, to its end, from a folder that every user can enter."""
    monkeypatch.chdir("/")

    def run_it(
        *argv: str, kind: str = "folder", env: Mapping[str, str] = ENV, **fields: object
    ) -> subprocess.CompletedProcess[str]:
        words = find_engine("namespace").argv(environment_in(images, kind, **fields), EngineLaunch(argv, env))
        return subprocess.run(
            [*who, *words], env=dict(env), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )

    return run_it
