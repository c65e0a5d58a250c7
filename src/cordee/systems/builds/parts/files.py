"""`copy` and `commands`: files of one's own, and what /bin/sh does."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path

from cordee.systems.builds.bench import INSIDE, BuildStep, StepCommand
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.host_settings import network_variables
from cordee.systems.builds.parts._base import RecipePart
from cordee.systems.builds.recipe import NOT_KEPT, CopiedPath


class CopiedFiles(RecipePart):
    """Files and folders from beside the EDF: their content, whether they can be executed, links as they are."""

    name = "copy"

    def wanted(self) -> bool:
        """Return whether there are any."""
        return bool(self.recipe.copy_)

    def steps(self) -> list[BuildStep]:
        """Return a step for each entry."""
        copies = [(each, content_digest(each.source, each.without)) for each in self.bench.loaded.copies()]
        self.bench.lock.copies = [
            {"from": each.given.partition(":")[0], "to": each.target, "hash": digest} for each, digest in copies
        ]
        return [self._step(each, digest) for each, digest in copies]

    def _step(self, each: CopiedPath, digest: str) -> BuildStep:
        def command(files: Path) -> StepCommand:
            copied = files / "copied"
            copied.mkdir()
            _plain_copy(each, copied / "content")
            if content_digest(copied / "content") != digest:
                raise BuildError(
                    "what is copied changed while the image was made", given=str(each.source), next="build again"
                )
            mounts = [(copied, f"{INSIDE}/copied", False)]
            return StepCommand([], mounts, copied=(f"{INSIDE}/copied/content", each.target, NOT_KEPT))

        return self.step(f"copy {each.given}", [digest, each.target, 2], command)._replace(sweep=False)


class ShellCommands(RecipePart):
    """Lines that /bin/sh runs as root, each with a layer of its own."""

    name = "commands"

    def wanted(self) -> bool:
        """Return whether there are any."""
        return bool(self.recipe.commands)

    def steps(self) -> list[BuildStep]:
        """Return a step for each line."""
        return [self._step(line) for line in self.recipe.commands]

    def _step(self, line: str) -> BuildStep:
        network, workdir = self.recipe.network, self.recipe.workdir or "/"

        def command(files: Path) -> StepCommand:
            variables, mounts = network_variables() if network else ({}, [])
            script = 'mkdir -p "$1" && cd "$1" && eval "$2"'
            return StepCommand(["/bin/sh", "-e", "-c", script, "sh", workdir, line], mounts, variables, network)

        return self.step(f"command: {line}", [line, network, workdir], command, repeats=False)


def content_digest(path: Path, without: frozenset[Path] = frozenset()) -> str:
    """Return what tells a file or folder from all others: names, content, links and whether files can be executed.

    Raises:
        BuildError: some of it cannot be read, or is neither file, folder nor link.
    """
    try:
        return f"sha256:{_content_digest(path, without)}"
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        raise BuildError(
            f"what is copied cannot be read: {error.strerror}",
            given=str(error.filename),
            next="it went away meanwhile: build again" if gone else "make it readable for you, or copy less",
        ) from None


def _content_digest(path: Path, without: frozenset[Path]) -> str:
    found = hashlib.sha256()
    for name, each in _walk(path, without):
        mode = os.lstat(each).st_mode
        if stat.S_ISLNK(mode):
            found.update(f"link {name}\0{os.readlink(each)}\0".encode(errors="surrogateescape"))
        elif stat.S_ISREG(mode):
            with open(each, "rb") as file:
                inner = hashlib.file_digest(file, "sha256").hexdigest()
            found.update(f"file {name} {bool(mode & 0o100)} {inner}\0".encode(errors="surrogateescape"))
        elif stat.S_ISDIR(mode):
            found.update(f"folder {name}\0".encode(errors="surrogateescape"))
        else:
            raise BuildError("what is copied has a device, socket or pipe in it", given=str(each), next="take it out")
    return found.hexdigest()


def _walk(path: Path, without: frozenset[Path]) -> list[tuple[str, Path]]:
    found, waiting = [], [("", os.path.realpath(path))]
    while waiting:  # folders can be deeper than Python's recursion
        name, real = waiting.pop()
        place = os.path.join(path, name) if name else os.fspath(path)
        found.append((name, Path(place)))
        if os.path.isdir(place) and not os.path.islink(place):
            inner = [each for each in os.listdir(place) if Path(real, each) not in without]
            waiting += [(os.path.join(name, each), os.path.join(real, each)) for each in inner]
    return sorted(found)


def _plain_copy(copied: CopiedPath, target: Path) -> None:
    """Copy without what differs between two checkouts: times, owners, and rights but that to execute."""
    for name, each in _walk(copied.source, copied.without):
        place, mode = (target / name if name else target), os.lstat(each).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(each), place)
        elif stat.S_ISDIR(mode):
            place.mkdir()
            place.chmod(0o755)
        else:
            shutil.copyfile(each, place)
            place.chmod(0o755 if mode & 0o100 else 0o644)
