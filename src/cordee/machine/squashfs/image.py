"""A squashfs file, written as a stream and put in its place when it is whole."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from cordee.machine.squashfs.entry import SquashfsEntry
from cordee.machine.squashfs.errors import PackError
from cordee.machine.squashfs.readback import Contents, contents_of

# Algorithms that the kernel's squashfs reads, with the words for mksquashfs. zstd at 3 packs several times faster than at
# its default of 15, for a tenth more bytes.
COMPRESSIONS = {
    "zstd": ("-Xcompression-level", "3"),
    "lz4": (),
    "gzip": ("-Xcompression-level", "6"),
    "xz": (),
    "none": ("-noI", "-noD", "-noF", "-noX"),
}
_CHUNK = 1 << 20


class SquashFile:
    """Writes entries into a squashfs that appears at `path` only by `put`; whatever ends it before, nothing is left.

    The file has no name until it is whole, where the file system can do that (O_TMPFILE). Elsewhere it is called
    `.NAME.part`, is locked, and one that a killed process left is overwritten by the next.

    Args:
        path: where it will appear.
        compression: one of COMPRESSIONS.
        processors: threads that compress.
        made_s: the time of the file and of all entries, seconds since the epoch: the same entries make the same bytes.
            None: now, and the entries' own.
    """

    def __init__(self, path: Path, compression: str, processors: int, made_s: int | None = None) -> None:
        program = shutil.which("mksquashfs")
        if program is None:
            raise PackError("mksquashfs is not installed", next="install squashfs-tools, version 4.5 or newer")
        self._path, self._part = path, path.with_name(f".{path.name}.part")
        self._file = self._open()
        self._went_in: Contents = Counter()
        try:
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 closed by __exit__
            algorithm = "gzip" if compression == "none" else compression
            argv = [program, "-", f"/proc/self/fd/{self._file}", "-tar", "-noappend", "-no-recovery", "-no-progress"]
            argv += ["-quiet", "-no-xattrs", "-no-duplicates", "-comp", algorithm, *COMPRESSIONS[compression]]
            argv += ["-root-mode", "755", "-processors", str(processors)]
            if made_s is not None:
                # Not -root-time: mksquashfs 4.5 leaves it out where entries come as a stream.
                argv += ["-mkfs-time", str(made_s), "-all-time", str(made_s)]
            self._child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=self._said, stderr=self._said, pass_fds=[self._file]
            )
        except BaseException:
            os.close(self._file)
            raise
        assert self._child.stdin is not None
        self._pipe = self._child.stdin

    def _open(self) -> int:
        try:
            return os.open(self._path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise _unwritable(self._path, error)
        try:
            file = os.open(self._part, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _unwritable(self._path, error)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise PackError("another process is writing this file", given=self._path, next="wait for it")
        return file

    def __enter__(self) -> SquashFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        try:
            self._pipe.close()
        except OSError:  # what was not written yet has no reader
            pass
        self._said.close()
        if os.fstat(self._file).st_nlink and self._part.exists():
            self._part.unlink()
        os.close(self._file)

    def add(self, entry: SquashfsEntry) -> None:
        """Add one entry.

        Raises:
            PackError: its file cannot be read or is being changed; the squashfs cannot be written.
        """
        try:
            if entry.kind == "file" and entry.data is None:
                self._copy(entry)
            else:
                data = entry.data or b""
                self._note(len(data), zlib.crc32(data))
                self._pipe.write(_header(entry, len(data)) + data + _padding(len(data)))
        except BrokenPipeError:
            self._failed()

    def add_pieces(self, entry: SquashfsEntry, pieces: Iterable[bytes]) -> None:
        """Add a file of `entry.size` bytes that come in pieces.

        Raises:
            PackError: there are fewer or more bytes; the squashfs cannot be written.
        """
        try:
            self._pipe.write(_header(entry, entry.size))
            left, check = entry.size, 0
            for piece in pieces:
                left, check = left - len(piece), zlib.crc32(piece, check)
                if left < 0:
                    break
                self._pipe.write(piece)
            if left:
                changed = "shorter" if left > 0 else "longer"
                raise PackError(
                    f"became {changed} while it was packed", given=entry.source or entry.name, next="pack again"
                )
            self._pipe.write(_padding(entry.size))
            self._note(entry.size, check)
        except BrokenPipeError:
            self._failed()

    def _copy(self, entry: SquashfsEntry) -> None:
        assert entry.source is not None
        try:
            stream = open(entry.source, "rb", buffering=0)  # noqa: SIM115 closed below
        except OSError as error:
            raise PackError(
                f"cannot be read: {error.strerror}", given=entry.source, next="pack as somebody who may read it all"
            )
        with stream:
            self.add_pieces(entry, _pieces(stream, entry.size))

    def _note(self, size: int, check: int) -> None:
        if size:
            self._went_in[size, check] += 1

    def finish(self) -> int:
        """Wait until all is on disk, read it back, and return the size in bytes.

        Raises:
            PackError: it could not be written, or something else was written than went in.
        """
        try:
            self._pipe.write(tarfile.NUL * (2 * tarfile.BLOCKSIZE))
            self._pipe.close()
        except BrokenPipeError:
            self._failed()
        if self._child.wait():
            self._failed()
        os.fsync(self._file)
        found = contents_of(self._file)
        if found is not None and found != self._went_in:
            raise PackError(
                f"{(self._went_in - found).total()} files were written wrongly by mksquashfs",
                given=self._path,
                next="pack again, or with newer squashfs-tools; nothing was left there",
            )
        return os.fstat(self._file).st_size

    def put(self, force: bool) -> None:
        """Let the whole file appear at its path, in place of one that is there where `force` allows it.

        Raises:
            PackError: one has appeared there meanwhile.
        """
        nameless = os.fstat(self._file).st_nlink == 0
        if nameless and not force:
            try:
                self._link(self._path.name)
            except FileExistsError:
                raise PackError("appeared while it was packed", given=self._path, next="give --force to replace it")
            return
        part = self._part
        if nameless:
            part = part.with_name(f".{self._path.name}.{os.getpid()}.part")
            self._link(part.name)
        os.replace(part, self._path)

    def _link(self, name: str) -> None:
        folder = os.open(self._path.parent, os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # with a folder's descriptor linkat follows /proc's link to the nameless file
            os.link(f"/proc/self/fd/{self._file}", name, dst_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)

    def _failed(self) -> None:
        code = self._child.wait()
        self._said.seek(0)
        words = self._said.read().decode(errors="replace").strip()
        if "No space left" in words or "Disk quota" in words:
            free = shutil.disk_usage(self._path.parent).free
            raise PackError(
                "there is no room for the file",
                given=f"{self._path.parent} ({free:,} bytes free)",
                next="choose another folder by --output, or another --compression; nothing was left there",
            )
        raise PackError(
            f"mksquashfs ended with {code}: {words[-500:] or 'without a word'}",
            given=self._path,
            next="squashfs-tools 4.5 or newer reads tar streams; `mksquashfs -version` tells",
        )


def _header(entry: SquashfsEntry, size: int) -> bytes:
    info = tarfile.TarInfo(entry.name)
    info.mode, info.mtime = entry.mode, entry.time
    if entry.kind == "file":
        info.size = size
    elif entry.kind == "folder":
        info.type = tarfile.DIRTYPE
    else:
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _pieces(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Give the first `size` bytes of a file: one that grows is packed as it was when it was listed."""
    while size and (piece := stream.read(min(size, _CHUNK))):
        size -= len(piece)
        yield piece


def _padding(size: int) -> bytes:
    return tarfile.NUL * (-size % tarfile.BLOCKSIZE)


def _unwritable(path: Path, error: OSError) -> PackError:
    return PackError(
        f"cannot be written: {error.strerror}", given=path, next="choose a folder that is there and yours, by --output"
    )
