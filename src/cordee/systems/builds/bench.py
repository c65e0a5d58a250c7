"""The bench that an image is made on: its base, the layers over it, and commands run in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.ports.images import ImageWorkshop
from cordee.systems.builds.base import BaseImage
from cordee.systems.builds.cache import BuildCache, CachedLayer
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.layout import DEFAULT_PATH
from cordee.systems.builds.lock import BuildLock
from cordee.systems.builds.recipe import LoadedRecipe, digest_of

INSIDE = "/run/cordee"
_WORDS_BYTES = 3000
_LEAST_BYTES = 1 << 20
_NO_ATTRIBUTES = "; the file system of the cache keeps no extended attributes, so that a folder cannot be made anew"
# The engine's own words, where not the command but its container failed.
_REFUSED_CODES = (125, 126, 127)
_REFUSED = re.compile(r"^cordee: (?P<text>.*)(?:\n  given: +(?P<given>.*))?(?:\n  next: +(?P<next>.*))?\Z", re.M)
# What every command of a build gets: nothing of the machine's, and what makes tools repeat themselves.
_VARIABLES = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "DEBIAN_FRONTEND": "noninteractive",
}


class StepCommand(NamedTuple):
    """One command that is run over the layers.

    Attributes:
        argv: of it.
        mounts: (source, target, whether it can be written to).
        env: beside what every command gets.
        network: whether it can reach the network.
        workdir: where it begins.
        copied: (source, target, folders that no image keeps): what is copied into the image, in place of a command.
        here: whether it runs over programs and libraries of this machine, which it can only read, and not over the image's.
    """

    argv: Sequence[str]
    mounts: Sequence[tuple[Path, str, bool]] = ()
    env: Mapping[str, str] = {}
    network: bool = False
    workdir: str = "/"
    copied: tuple[str, str, Sequence[str]] | None = None
    here: bool = False


class BuildStep(NamedTuple):
    """What makes one layer.

    Attributes:
        label: for people.
        inputs: all that the layer depends on beside the layers below, as JSON takes it.
        command: returns the command, given a folder for files of its own.
        repeats: whether the same inputs are known to make the same files.
        packages: whether it installs locked packages.
        sweep: whether what tools write for themselves, as logs and caches, is left out of the layer.
    """

    label: str
    inputs: Any
    command: Callable[[Path], StepCommand]
    repeats: bool = True
    packages: bool = False
    sweep: bool = True


class BuildBench:
    """One image being made.

    Args:
        loaded: its recipe.
        lock: what is known of its packages; parts write into it.
        base: what it begins with.
        cache: where layers are kept.
        workshop: who can run steps.
        offline: nothing is fetched.
        fresh: layers of the cache are not used.
        say: told what is done, line by line.
    """

    def __init__(
        self,
        loaded: LoadedRecipe,
        lock: BuildLock,
        base: BaseImage,
        cache: BuildCache,
        workshop: ImageWorkshop,
        *,
        offline: bool = False,
        fresh: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.loaded, self.lock, self.base, self.cache = loaded, lock, base, cache
        self.workshop, self.offline, self.fresh, self.say = workshop, offline, fresh, say
        self.layers: list[CachedLayer] = []
        self.steps: list[BuildStep] = []

    def image_variables(self) -> dict[str, str]:
        """Return the variables of the image: those of the base, where conda's packages are, those of the recipe."""
        found, conda = {"PATH": DEFAULT_PATH, **self.base.config["Env"]}, self.loaded.recipe.conda
        if conda.packages:
            found |= {"PATH": f"{conda.prefix}/bin:{found['PATH']}", "CONDA_PREFIX": conda.prefix}
        return {**found, **self.loaded.recipe.env}

    def variables(self) -> dict[str, str]:
        """Return what every command of the build gets."""
        return {**self.image_variables(), **_VARIABLES, "SOURCE_DATE_EPOCH": str(self.lock.epoch)}

    def state(self) -> str:
        """Return what tells the layers so far from all others."""
        return self.layers[-1].name if self.layers else self.base.digest

    def add(self, step: BuildStep) -> tuple[CachedLayer, CachedLayer | None]:
        """Put one layer on top, from the cache or made now; return it, and the one that was there before it was made again.

        Raises:
            BuildError: its command failed, or there is no room.
        """
        key = digest_of([self.state(), step.label, step.inputs, self.lock.epoch, self.variables()])[:24]
        before = self.cache.layer(key)
        found = None if self.fresh else before
        if found is None:
            with self.cache.making(key, self.say):
                found = None if self.fresh else self.cache.layer(key)
                found = found or self.made(step, key)
        self.layers.append(found)
        self.steps.append(step)
        return found, before if self.fresh else None

    def made(self, step: BuildStep, key: str) -> CachedLayer:
        """Run a step and keep its layer under a key."""
        self.say(step.label)
        began = time.monotonic()
        with self.cache.temporary() as work, self.cache.faults():
            files = work / "files"
            files.mkdir()
            mark = work / "began"
            mark.touch()
            since = mark.stat().st_mtime_ns
            self._do(work, step.command(files), step.label)
            packed = self._pack(work, since, step.sweep)
            layer = self.cache.keep_layer(key, step.label, work / "upper", work / "archive", packed)
        return layer._replace(fresh=True, seconds=round(time.monotonic() - began, 3))

    @contextmanager
    def trial(self, label: str) -> Iterator[tuple[Path, Callable[[StepCommand], None]]]:
        """Give a folder, and what runs commands over the layers so far; what they change in the image is gone afterwards."""
        with self.cache.temporary() as work:
            files = work / "files"
            files.mkdir()
            yield files, lambda command: self._do(work, command, label)

    def _pack(self, work: Path, since_ns: int, sweep: bool) -> dict[str, Any]:
        """Return what is in the archive of a step's layer, which it writes."""
        order = {"do": "pack", "folder": str(work), "layer": "upper", "work": str(work), "sweep": sweep}
        order |= {"archive": str(work / "archive"), "epoch": self.lock.epoch, "since_ns": since_ns}  # type: ignore[dict-item]
        done = self._engine(work, order, subprocess.PIPE)
        if done.returncode:
            raise self._failed("the layer cannot be packed", done.stderr or b"", done.returncode)
        packed: dict[str, Any] = json.loads(done.stdout)
        return packed

    def _do(self, work: Path, command: StepCommand, label: str) -> None:
        mounts = [*command.mounts, *(((path, str(path), False) for path in _of_machine()) if command.here else ())]
        order = {
            "do": "run",
            "base": "" if command.here else str(self.base.root),
            "layers": [] if command.here else [layer.name for layer in reversed(self.layers)],
            "folder": str(self.cache.layers_folder),
            "work": str(work),
            "mounts": [[str(source), target, writable] for source, target, writable in mounts],
            "argv": list(command.argv),
            "env": {**(_VARIABLES if command.here else self.variables()), **command.env},
            "network": command.network,
            "workdir": command.workdir,
            "copied": command.copied,
        }
        with tempfile.TemporaryFile() as words:  # not on the disk that may be full
            done = self._engine(work, order, words)
            words.seek(max(0, words.seek(0, os.SEEK_END) - _WORDS_BYTES))
            if done.returncode:
                raise self._failed(f"{label}: it failed", words.read(), done.returncode)

    def _engine(self, work: Path, order: Mapping[str, Any], words: Any) -> subprocess.CompletedProcess[bytes]:
        path = work / "order.json"
        path.write_text(json.dumps(order))
        return subprocess.run(
            self.workshop.step_argv(path),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.PIPE if words is subprocess.PIPE else subprocess.STDOUT,
            check=False,
        )

    def _failed(self, text: str, words: bytes, code: int) -> BuildError:
        said = words.decode(errors="replace").strip()
        room = os.statvfs(self.cache.folder)
        why, hint = "", "correct the recipe and build again: what was made before it is kept"
        if "No space left on device" in said or (room.f_blocks and room.f_bavail * room.f_frsize < _LEAST_BYTES):
            why = ", because there is no space left"
            hint = f"make room in {self.cache.folder}, or name another folder with CORDEE_BUILD_CACHE"
        elif code in _REFUSED_CODES and (refused := _REFUSED.search(said)):
            return BuildError(f"{text}: {refused['text']}", given=refused["given"], next=refused["next"])
        elif "Input/output error" in said and not _keeps_attributes(self.cache.folder):
            # Overlays need them for folders that are removed and made anew.
            why, hint = _NO_ATTRIBUTES, "name a folder on a local disk with CORDEE_BUILD_CACHE"
        return BuildError(f"{text} with {code}{why}", given="\n" + said if said else "it said nothing", next=hint)


def _keeps_attributes(folder: Path) -> bool:
    try:
        os.setxattr(folder, "user.cordee", b"")
        os.removexattr(folder, "user.cordee")
    except OSError:
        return False
    return True


def _of_machine() -> list[Path]:
    """Return the folders with this Python, its modules, and the libraries and certificates of the system, each outside of the others."""
    names = ["/etc", "/usr", "/bin", "/lib", "/lib64", sys.base_prefix, sys.prefix, *filter(os.path.isabs, sys.path)]
    found: list[Path] = []
    for path in sorted({Path(name) for name in names if os.path.isdir(name)}):
        if not any(path.is_relative_to(each) for each in found):
            found.append(path)
    return found
