"""What is copied into an image, put there by this process inside the step's root: an image may have no program at all."""

from __future__ import annotations

import os
import shutil
import stat
import sys


def copy_in(content: str, target: str, not_kept: list[str]) -> int:
    """Copy a file, link or folder to where it comes; return the exit code.

    Files take the place of those that are there, also of links. Of a folder what is in it comes; links to folders are followed.

    Args:
        not_kept: folders of which an image keeps nothing.
    """
    single = os.path.islink(content) or not os.path.isdir(content)
    folder = os.path.dirname(target) if single else target
    try:
        os.makedirs(folder, exist_ok=True)
        real = os.path.realpath(folder)
        if any(f"{real}/".startswith(f"{each}/") for each in not_kept):
            return _refuse(f"{target} leads to a folder of which no image keeps anything")
        if single:
            if os.path.isdir(target):
                return _refuse(f"{target} is a folder of the image: end the target with / to copy into it")
            _put(content, target)
            return 0
        waiting = [""]
        while waiting:
            inner = waiting.pop()
            for entry in os.scandir(os.path.join(content, inner)):
                name = os.path.join(inner, entry.name)
                place = os.path.join(target, name)
                if not entry.is_dir(follow_symlinks=False):
                    _put(entry.path, place)
                    continue
                if not os.path.isdir(place):
                    os.mkdir(place)
                waiting.append(name)
    except (FileExistsError, NotADirectoryError) as error:
        return _refuse(f"{error.filename} is a file of the image, and a folder is to be there")
    except OSError as error:
        return _refuse(f"{error.filename2 or error.filename}: {error.strerror}")
    return 0


def _put(source: str, place: str) -> None:
    if os.path.lexists(place):
        os.unlink(place)
    if os.path.islink(source):
        os.symlink(os.readlink(source), place)
    else:
        shutil.copyfile(source, place)
        os.chmod(place, stat.S_IMODE(os.stat(source).st_mode))


def _refuse(words: str) -> int:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
    return 1
