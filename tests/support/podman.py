"""Podman for tests: an image with a Python, and a user without rights who may have containers."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cordee.testing.containers import AS_USER, UID
from cordee.testing.images import busybox_root
from cordee.testing.patience import wait_until

_LEFT_OUT = ("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "lib2to3", "__pycache__", "config-*")
_BEFORE = """
mount --bind "$CORDEE_TEST_ROOTLESS/ids" /etc/subuid && mount --bind "$CORDEE_TEST_ROOTLESS/ids" /etc/subgid &&
mount --bind "$CORDEE_TEST_ROOTLESS/tun" /dev/net/tun && exec "$@"
"""

_DOCKER = """#!/bin/bash
[ "$1" = -v ] && {{ echo "Docker version 20.10.0, build podman"; exit; }}
words=()
for word; do
  [ "$last" = --user ] && word=0:0
  words+=("$word"); last=$word
done
[ "$1" = create ] && words=(create {own} "${{words[@]:1}}")
exec podman --remote --url {socket} "${{words[@]}}"
"""


def python_root(folder: Path) -> Path:
    """Make the root of an image with this Python as /usr/bin/python3, beside busybox."""
    busybox_root(folder)
    program, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    ignored = shutil.ignore_patterns(*_LEFT_OUT)
    shutil.copytree(library, _within(folder, library), ignore=ignored, dirs_exist_ok=True)
    _copy(program, folder)
    (folder / "usr/bin/python3").unlink(missing_ok=True)
    if not (folder / "usr/bin/python3").exists():
        (folder / "usr/bin/python3").symlink_to(program)
    for one in (program, *(library / "lib-dynload").glob("*.so")):
        said = subprocess.run(["ldd", one], capture_output=True, text=True, check=False).stdout
        for word in said.split():
            if word.startswith("/") and not _within(folder, Path(word)).exists():
                _copy(Path(word), folder)
    for place, _, _ in os.walk(folder):
        os.chmod(place, stat.S_IMODE(os.stat(place).st_mode) | 0o555)
    return folder


def _within(folder: Path, path: Path) -> Path:
    return folder / path.relative_to("/")


def _copy(path: Path, folder: Path) -> None:
    target = _within(folder, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    target.chmod(0o755)


def import_image(root: Path, name: str, before: tuple[str, ...] = ()) -> None:
    """Make an image of a root; `before` stands before podman's command."""
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run([*before, "podman", "import", "-", name], stdin=tar.stdout, check=True, capture_output=True)


class Rootless:
    """A user without rights, with subordinate ids, a home and a runtime folder, seen by what it runs alone.

    Args:
        folder: closed to nobody.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        (folder / "ids").write_text(f"{UID}:100000:65536\n")
        os.mknod(folder / "tun", 0o666 | stat.S_IFCHR, os.makedev(10, 200))
        (folder / "tun").chmod(0o666)
        for name in ("home", "run"):
            (folder / name).mkdir(mode=0o700)
            os.chown(folder / name, UID, UID)

    def words(self, **env: str) -> tuple[str, ...]:
        """Return what stands before a command that this user runs."""
        own = {"PATH": "/bin:/usr/bin:/usr/sbin:/sbin", "HOME": str(self.home), "XDG_RUNTIME_DIR": f"{self.folder}/run"}
        inside = [*AS_USER, "env", "-i", *(f"{name}={value}" for name, value in {**own, **env}.items())]
        outer = ["env", f"CORDEE_TEST_ROOTLESS={self.folder}", "unshare", "--mount", "sh", "-c", _BEFORE, "sh"]
        return (*outer, *inside)

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command as this user."""
        return subprocess.run([*self.words(**env), *words], capture_output=True, text=True, cwd="/", check=False)


@contextmanager
def rootless() -> Iterator[Rootless]:
    """Give such a user, and take away all that is theirs."""
    # Container engines cover /tmp while they mount.
    with tempfile.TemporaryDirectory(prefix="cordee-rootless-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        user = Rootless(folder)
        try:
            yield user
        finally:
            user.run("podman", "rm", "--force", "--all", "--time", "0")
            user.run("podman", "system", "migrate")  # ends the process that holds its namespaces


@contextmanager
def docker_by_podman(folder: Path, options: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a program that takes Docker's command lines, for the time of the context: Podman of root does what they say.

    It may be called in a user namespace, as the daemons of root's pool are: Podman itself is outside of it, and whoever is nobody
    there is root here.

    Args:
        folder: for the program and its socket.
        options: of `create`, beside what the caller gives.
    """
    # Podman asks for more than this machine may give.
    own = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
    socket, program = folder / "podman.sock", folder / "docker"
    program.write_text(_DOCKER.format(own=shlex.join([*own, *options]), socket=shlex.quote(f"unix://{socket}")))
    program.chmod(0o755)
    with subprocess.Popen(["podman", "system", "service", "-t", "0", f"unix://{socket}"]) as service:
        try:
            assert wait_until(socket.exists, 20.0)
            yield program
        finally:
            service.terminate()
