"""Where mounts go inside a root: symbolic links are followed within it, and what is missing is made in a layer of our own.

Links are resolved here and not by the kernel: an absolute link in an image, or one with `..`, must never lead out of it.
"""

from __future__ import annotations

import os
import stat

from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_MOST_LINKS = 40


class RootTree:
    """A root made of folders that lie over each other.

    Args:
        layers: the folders, the uppermost first; what is missing is made in the first.
    """

    def __init__(self, *layers: str) -> None:
        self._layers = layers
        self._covered: set[str] = set()

    def cover(self, path: str) -> None:
        """Note that something will be mounted on `path`: what is below it is not known yet."""
        self._covered.add(path)

    def look(self, path: str) -> Optional[os.stat_result]:
        """Return what is at `path`, links not followed; None: nothing."""
        for layer in self._layers:
            try:
                return os.lstat(layer + path)
            except (FileNotFoundError, NotADirectoryError):
                continue
        return None

    def resolve(self, target: str) -> tuple[str, Optional[os.stat_result], bool]:
        """Return (path without links, what is there, whether it lies below something that will be mounted).

        Raises:
            Refused: too many links, or a file where a folder has to be.
        """
        pending = [part for part in reversed(target.split("/")) if part not in ("", ".")]
        path, links = "", 0
        found = self.look("/")
        while pending:
            if path in self._covered:
                return "/".join([path, *reversed(pending)]), None, True
            part = pending.pop()
            if part == "..":
                path = path.rpartition("/")[0]
                continue
            if found is not None and not stat.S_ISDIR(found.st_mode):
                raise EngineRefused(f"{path} is not a folder inside, so nothing can be mounted below it", given=target)
            path = f"{path}/{part}"
            found = self.look(path)
            if found is not None and stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise EngineRefused("too many symbolic links inside the image", given=target)
                goal = self._read_link(path)
                path = "" if goal.startswith("/") else path.rpartition("/")[0]
                pending += [part for part in reversed(goal.split("/")) if part not in ("", ".")]
                found = self.look(path or "/")
        return path or "/", self.look(path or "/"), path in self._covered

    def _read_link(self, path: str) -> str:
        for layer in self._layers:
            try:
                return os.readlink(layer + path)
            except OSError:
                continue
        raise EngineRefused("a symbolic link inside the image went away while it was read", given=path)

    def point(self, target: str, folder: bool) -> Optional[str]:
        """Return the path, inside and without links, at which to mount; made where it is missing.

        None: it lies below something that will be mounted, so that it cannot be looked up yet.

        Raises:
            Refused: a file is there and a folder was wanted, or the other way round; or it cannot be made.
        """
        path, found, later = self.resolve(target)
        if path == "/":
            raise EngineRefused(
                "nothing can be mounted over the root itself", given=target, next="give its path as the image"
            )
        if later and path not in self._covered:
            return None
        if found is None and path not in self._covered:
            self._make(path, folder, target)
        elif found is not None and stat.S_ISDIR(found.st_mode) != folder:
            there, wanted = ("folder", "file") if not folder else ("file", "folder")
            raise EngineRefused(f"a {wanted} cannot be mounted where the image has a {there}", given=target)
        return path

    def _make(self, path: str, folder: bool, target: str) -> None:
        try:
            self.make_folder(path if folder else path.rpartition("/")[0])
            if not folder:
                os.close(os.open(self._layers[0] + path, os.O_CREAT | os.O_WRONLY, 0o644))
        except OSError as error:
            raise EngineRefused(
                f"there is no {target} inside and it cannot be made: {error.strerror}",
                given=target,
                next="mount it where it exists, or make it first",
            ) from None

    def insist(self, path: str) -> None:
        """Have a real folder at the top of the root: a link or a file there is hidden by one of the first layer.

        Raises:
            OSError: the layer cannot be written.
        """
        found = self.look(path)
        if found is None or not stat.S_ISDIR(found.st_mode):
            self.make_folder(path)

    def make_folder(self, path: str, mode: int = 0o755) -> None:
        """Make a folder in the first layer, with those above it as the lower layers have them.

        Raises:
            OSError: the layer cannot be written.
        """
        if not path or path == "/":
            return
        here = self._layers[0] + path
        if os.path.isdir(here):
            return
        self.make_folder(path.rpartition("/")[0])
        found = self.look(path)
        if found is not None and not stat.S_ISDIR(found.st_mode):
            found = None
        os.mkdir(here)
        os.chmod(here, mode if found is None else stat.S_IMODE(found.st_mode))
        if found is not None and os.geteuid() == 0:
            os.chown(here, found.st_uid, found.st_gid)

    def write(self, path: str, content: str) -> None:
        """Write a file in the first layer, over what the lower ones have there.

        Raises:
            OSError: the layer cannot be written.
        """
        folder, _, name = path.rpartition("/")
        folder = self.resolve(folder)[0].rstrip("/")
        self.make_folder(folder)
        with open(f"{self._layers[0]}{folder}/{name}", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)

    def read(self, path: str) -> str:
        """Return what is in a file, links followed inside; nothing where there is no file."""
        at, found, _ = self.resolve(path)
        if found is None or not stat.S_ISREG(found.st_mode):
            return ""
        for layer in self._layers:
            try:
                with open(layer + at, encoding="utf-8", errors="surrogateescape") as file:
                    return file.read()
            except OSError:
                continue
        return ""

    def link(self, path: str, goal: str) -> None:
        """Make a symbolic link in the first layer, unless something is there.

        Raises:
            OSError: the layer cannot be written.
        """
        at, found, _ = self.resolve(path)
        if found is None:
            self.make_folder(at.rpartition("/")[0])
            os.symlink(goal, self._layers[0] + at)
