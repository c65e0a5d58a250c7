"""Making squashfs files, from a tar stream or a folder, with the squashfs-tools."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cordee.machine.images.errors import ImageError, StoreError

# zstd at level 3 packs at the speed of a disk; the tool's own default, 15, takes ten times as long for 5 % less.
_PACKING = ["-comp", "zstd", "-Xcompression-level", "3"]
# The tool would take a quarter of the machine, which on a login node is other people's too.
_MEMORY = "512M"
_PIPE_BYTES = 1 << 20


def tool() -> str:
    """Return the path of mksquashfs.

    Raises:
        ImageError: it is not installed.
    """
    found = shutil.which("mksquashfs")
    if found is None:
        raise ImageError(
            "images become squashfs files with mksquashfs, which is not installed",
            next="install squashfs-tools 4.5 or newer, or give a squashfs file or a root folder",
        )
    return found


def tool_version() -> str:
    """Return what mksquashfs says of its version."""
    done = subprocess.run([tool(), "-version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0].strip()


@contextmanager
def squashfs_from_tar(path: Path, *, root_mode: int = 0o755) -> Iterator[BinaryIO]:
    """Give a stream that takes an uncompressed tar archive and becomes the squashfs file `path`.

    All in it belongs to the calling user: in a container of their own that is the only one there is, and overlays over
    files of others fail. Extended attributes are left out.

    Raises:
        StoreError: there is no space left, or the file cannot be written.
        ImageError: the tool is missing or too old.
    """
    command = [tool(), "-", str(path), "-tar", "-root-mode", f"{root_mode:o}", *_options()]
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=words, stderr=words, bufsize=_PIPE_BYTES)
        assert process.stdin is not None
        try:
            fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # this user's pipes are shorter
        try:
            yield process.stdin  # type: ignore[misc]
            process.stdin.close()
        except BrokenPipeError:
            pass  # the tool has ended, and says why
        except BaseException:
            process.kill()
            raise
        finally:
            # Closing writes what is buffered, into a pipe that may have no reader any more.
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass
            code = process.wait()
        _judge(code, words, path)


def _options() -> list[str]:
    owner = ["-force-uid", str(os.getuid()), "-force-gid", str(os.getgid())]
    processors = ["-processors", str(len(os.sched_getaffinity(0)))]
    return [*_PACKING, *owner, *processors, "-mem", _MEMORY, "-no-xattrs", "-no-progress", "-quiet", "-exit-on-error"]


def _judge(code: int, words: BinaryIO, path: Path) -> None:
    if code == 0:
        return
    words.seek(0)
    said = words.read().decode(errors="replace").strip()
    if os.strerror(errno.ENOSPC) in said:
        raise no_space(path.parent)
    if os.strerror(errno.EDQUOT) in said:
        raise out_of_quota(path.parent)
    if "invalid option" in said and "-tar" in said:
        raise ImageError("mksquashfs is too old", given=tool_version(), allowed="squashfs-tools 4.5 or newer")
    raise StoreError(f"mksquashfs failed with {code}: {said[-500:]}", given=str(path))


_ROOM = "cordee env gc, or name another place with EDF_IMAGESTORE"


def no_space(folder: Path) -> StoreError:
    """Return the error for a store that is full."""
    return StoreError("there is no space left in the image store", given=str(folder), next=_ROOM)


def out_of_quota(folder: Path) -> StoreError:
    """Return the error for a store whose owner has no quota left."""
    return StoreError("the quota for the image store is used up", given=str(folder), next=_ROOM)
