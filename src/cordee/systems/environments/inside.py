"""Whether a folder is there inside an environment, before anything is mounted."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import PurePosixPath

from cordee.systems.environments.node.document import SQUASHFS_FLAG, ContainerRoot, Environment

# A path of the root, to what is there: `folder`, `file`, the target of a link as `-> target`, None for nothing.
_Look = Callable[[PurePosixPath], str | None]

_FOLDER, _FILE, _LINK = "folder", "file", "-> "
_MOST_LINKS = 40
_LISTING_S = 60.0


def has_folder(path: str, environment: Environment) -> bool | None:
    """Return whether a folder is there inside, None when that cannot be told.

    Links are followed as they are seen inside. What is mounted counts; a squashfs file is asked through unsquashfs.

    Args:
        path: absolute.
        environment: with its root; None, as the root of an image that is not here, tells nothing.
    """
    below = PurePosixPath(path)
    for mount in reversed(environment.mounts):
        if below.is_relative_to(mount.target):
            if SQUASHFS_FLAG in mount.flags:
                return _folder_in(below.relative_to(mount.target), ContainerRoot("squashfs", mount.source))
            return os.path.isdir(os.path.join(mount.source, below.relative_to(mount.target)))
    return _folder_in(below.relative_to("/"), environment.root) if environment.root else None


def _folder_in(path: PurePosixPath, root: ContainerRoot) -> bool | None:
    if root.kind != "squashfs":
        return _follow(path, _look_in_folder(root.path if root.kind == "folder" else ""))
    program = shutil.which("unsquashfs")
    try:
        return _follow(path, _look_in_squashfs(program, root.path)) if program else None
    except (OSError, subprocess.SubprocessError):
        return None


def _follow(path: PurePosixPath, look: _Look) -> bool:
    """Return whether a path, from the root on, leads to a folder."""
    left, here, links = list(reversed(path.parts)), PurePosixPath("/"), 0
    while left:
        part = left.pop()
        if part == "..":
            here = here.parent
            continue
        found = look(here / part)
        if found == _FOLDER:
            here /= part
        elif found is not None and found.startswith(_LINK) and links < _MOST_LINKS:
            links += 1
            target = PurePosixPath(found[len(_LINK) :])
            here = PurePosixPath("/") if target.is_absolute() else here
            left.extend(each for each in reversed(target.parts) if each != "/")
        else:
            return False
    return True


def _look_in_folder(root: str) -> _Look:
    def look(path: PurePosixPath) -> str | None:
        try:
            mode = os.lstat(f"{root}{path}").st_mode
            if stat.S_ISLNK(mode):
                return _LINK + os.readlink(f"{root}{path}")
        except OSError:
            return None
        return _FOLDER if stat.S_ISDIR(mode) else _FILE

    return look


def _look_in_squashfs(program: str, image: str) -> _Look:
    def look(path: PurePosixPath) -> str | None:
        depth = str(len(path.parts) - 1)
        listed = subprocess.run(
            [program, "-ll", "-no-wildcards", "-max-depth", depth, image, str(path)[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_LISTING_S,
            check=True,
        )
        for line in listed.stdout.splitlines():
            attributes, found, rest = line.partition(f"squashfs-root{path}")
            if found and not rest:
                return _FOLDER if attributes.startswith("d") else _FILE
            if found and rest.startswith(f" {_LINK}"):
                return rest[1:]
        return None

    return look
