"""Whether a locked recipe makes one digest: ten builds, each from the lock with a cache of its own, each disturbed in another way.

    .venv/bin/python benchmarks/environment_digest.py FOLDER     # as root; FOLDER on a local disk that all users may enter, 10 GB

A Debian of mmdebstrap, packages by apt and pip, copied files, commands. Packages are fetched once, by `cordee env lock`; everything
over the base is made in each build. Exit code 1: the digests differ.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from support.open_python import OpenPython, open_python

RECIPE = """
image = "digest"
[build]
from = "BASE"
apt = ["python3", "python3-pip", "cron"]
pip = ["numpy==2.3.5", "networkx==3.6"]
copy = ["files:/opt/files"]
commands = ["useradd -m climber", "python3 -c 'import numpy' && ldconfig"]
"""
NAMES = ("b", "a", "c", "Z", "\u00e9")
AS_USER = ["setpriv", "--reuid", "1001", "--regid", "1001", "--clear-groups"]
ONE_CORE = ["taskset", "-c", "0"]
PRIVATE = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
LATER = {"SOURCE_DATE_EPOCH": str(int(time.time()) + 400 * 86_400)}


class Bench:
    """One folder with a base image, a lock and what was fetched for it."""

    def __init__(self, folder: Path, python: OpenPython) -> None:
        self.folder, self.python = folder, python
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        root = folder / "base.sqsh"
        if not root.exists():
            words = ["mmdebstrap", "--variant=apt", "--include=ca-certificates", "bookworm", str(folder / "base.tar")]
            subprocess.run(words, check=True, capture_output=True)
            with (folder / "base.tar").open("rb") as tar:
                words = ["sqfstar", "-quiet", "-no-progress", "-all-root", "-comp", "zstd", str(root)]
                subprocess.run(words, stdin=tar, check=True)
        self.first = self.kitchen("first")
        self.run(self.first, ["lock", "env.toml"])

    def kitchen(self, name: str, reverse: bool = False) -> Path:
        """Make a folder with the recipe and its files, in one order or the other, with other times."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        (place / "files").mkdir(parents=True)
        for number, each in enumerate(reversed(NAMES) if reverse else NAMES):
            path = place / "files" / each
            path.write_text(each * 1000)
            path.chmod(0o700 if each == "c" else 0o600 if reverse else 0o644)
            os.utime(path, (number * 10**8, number * 10**8) if reverse else None)
        (place / "env.toml").write_text(RECIPE.replace("BASE", str(self.folder / "base.sqsh")))
        return place

    def variables(self, place: Path, **more: str) -> dict[str, str]:
        own = {"CORDEE_BUILD_CACHE": f"{place}/cache", "EDF_IMAGESTORE": f"{place}/store", "HOME": str(place)}
        return {**os.environ, **own, "PYTHONPATH": self.python.source, **more}

    def command(self, words: list[str], front: Sequence[str]) -> list[str]:
        return [*front, self.python.executable, "-m", "cordee.cli", "env", *words]

    def run(self, place: Path, words: list[str], front: Sequence[str] = (), **more: str) -> str:
        env = self.variables(place, **more)
        done = subprocess.run(
            self.command(words, front), cwd=place, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{place.name}: {done.stdout}{done.stderr}")
        return done.stdout

    def fresh(self, name: str, reverse: bool = False, user: bool = False, memory: bool = False) -> Path:
        """Return a folder with the lock and the packages, and no layer."""
        place = self.kitchen(name, reverse)
        shutil.copyfile(self.first / "env.lock.json", place / "env.lock.json")
        if memory:
            cache = Path("/dev/shm") / f"cordee-digest-{os.getpid()}"
            (place / "cache").symlink_to(cache)
        (cache if memory else place / "cache").mkdir()
        shutil.copytree(self.first / "cache" / "blobs", place / "cache" / "blobs")
        if user:
            subprocess.run(["chown", "-R", "1001:1001", f"{place}/"], check=True)
        return place

    def build(
        self, name: str, front: Sequence[str] = (), reverse: bool = False, memory: bool = False, **more: str
    ) -> str:
        user = AS_USER[0] in front
        place = self.fresh(name, reverse, user, memory)
        began = time.monotonic()
        made = json.loads(self.run(place, ["build", "env.toml", "--offline", "--json"], front, **more))
        assert all(layer["fresh"] for layer in made["layers"])
        return self.told(name, made, began, place)

    def told(self, name: str, made: dict[str, object], began: float, place: Path) -> str:
        print(f"{name:40} {str(made['digest'])[:23]}  {time.monotonic() - began:6.1f} s", flush=True)
        real = os.path.realpath(place / "cache")
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(real, ignore_errors=True)
        return str(made["digest"])

    def together(self, names: list[str]) -> list[str]:
        """Two builds with one cache at the same time."""
        place, began = self.fresh(names[0]), time.monotonic()
        words = self.command(["build", "env.toml", "--offline", "--json"], [])
        env = self.variables(place)
        both = [
            subprocess.Popen(words, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in names
        ]
        made = [json.loads(process.communicate()[0]) for process in both]
        return [self.told(name, each, began, place) for name, each in zip(names, made, strict=True)]

    def killed(self, name: str) -> str:
        """A build that is killed every few seconds, and begun again."""
        place, began, after_s = self.fresh(name), time.monotonic(), 4.0
        words = self.command(["build", "env.toml", "--offline", "--json"], [])
        while True:
            process = subprocess.Popen(
                words,
                cwd=place,
                env=self.variables(place),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                said, _ = process.communicate(timeout=after_s)
                return self.told(f"{name} (the last after {after_s:.0f} s)", json.loads(said), began, place)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                after_s *= 1.7


def main() -> int:
    with open_python() as python:
        return ten_builds(Bench(Path(sys.argv[1]).absolute(), python))


def ten_builds(bench: Bench) -> int:
    found = [
        bench.build("as it is"),
        bench.build("a user without rights, umask 077", [*AS_USER, *PRIVATE]),
        bench.build("files in another order, with other times", reverse=True),
        bench.build("SOURCE_DATE_EPOCH of next year", **LATER),
        bench.build("another locale and time zone", LC_ALL="C", LANG="tr_TR.UTF-8", TZ="Pacific/Kiritimati"),
        bench.build("one core, PYTHONHASHSEED", ONE_CORE, PYTHONHASHSEED="7", PYTHONOPTIMIZE="2"),
        bench.build("cache and TMPDIR in memory", memory=True, TMPDIR="/dev/shm"),
        *bench.together(["two at once, the first", "two at once, the second"]),
        bench.killed("killed again and again"),
    ]
    print(f"{len(found)} builds, {len(set(found))} digest(s)")
    return 0 if len(set(found)) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
