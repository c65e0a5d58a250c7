"""A folder as the archive of a layer: the same files make the same bytes, whoever packs them, when, and in whatever order.

Names are in the order of their bytes; what was made since the step began has the build's time; owners are those that the
step set. Removed files become whiteouts as in the OCI image specification (layer.md).
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import stat
import tarfile

from cordee.systems.environments.node.engines.namespace.builds.ownership import OWNER, owner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")
_CAPABILITY = "security.capability"
_PIECE = 1 << 20
_UNKNOWN_ID = 65534
# What tools write for themselves, differently every time, and nobody needs: logs, lists, caches that are made anew.
SWEPT = (
    "var/log/*.log",
    "var/log/apt/*",
    "var/log/fontconfig.log",
    "var/cache/apt/*.bin",
    "var/cache/apt/archives/*.deb",
    "var/cache/apt/archives/lock",
    "var/cache/ldconfig/aux-cache",
    "var/cache/debconf/*-old",
    "var/cache/fontconfig/*",
    "var/lib/apt/lists/*",
    "var/lib/dpkg/*-old",
    "var/lib/dpkg/lock*",
    "var/lib/systemd/catalog/database",
    "etc/*-",
    "etc/.pwd.lock",
    "root/.cache/*",
    "root/.wget-hsts",
    "tmp/*",
)


class LayerArchive:
    """One archive being written.

    Args:
        folder: what is packed.
        out: where to.
        epoch: seconds, the time of what is new.
        since_ns: from when on files are new, by the clock of their file system.
        layered: whether it is the upper layer of an overlay, with its marks and kept owners; else a root as it is.
    """

    def __init__(self, folder: str, out: BinaryIO, *, epoch: int, since_ns: int, layered: bool) -> None:
        self._folder, self._out, self._epoch, self._since = os.fsencode(folder), out, epoch, since_ns
        self._layered = layered
        self._hash, self._links = hashlib.sha256(), {}  # type: ignore[var-annotated]
        self.bytes = self.files = self.removed = 0
        self.left_out: list[str] = []

    def pack(self) -> dict[str, Any]:
        """Write all of it; return its digest, and what it holds and does not.

        Raises:
            OSError: a file cannot be read, or the archive not written.
        """
        waiting = [b""]
        while waiting:  # folders can be deeper than Python's recursion
            name = waiting.pop()
            names = self._enter(name, os.lstat(os.path.join(self._folder, name)))
            waiting += [os.path.join(name, each) for each in reversed(names)]
        self._put(bytes(2 * tarfile.BLOCKSIZE))
        return {
            "digest": f"sha256:{self._hash.hexdigest()}",
            "bytes": self.bytes,
            "files": self.files,
            "removed": self.removed,
            "left_out": self.left_out,
            "owners_kept": not self._layered or takes_attributes(self._folder),
        }

    def _enter(self, name: bytes, found: os.stat_result) -> list[bytes]:
        """Write one entry; return the names in it, in order."""
        if os.path.basename(name).startswith(b".wh."):
            self.left_out.append(f"/{os.fsdecode(name)}: a name that says in an image that a file is removed")
            return []
        if name:
            self._member(name, found)
        if not stat.S_ISDIR(found.st_mode):
            return []
        if name and self._layered and self._is_opaque(name):
            self._empty(name + b"/.wh..wh..opq")
        return sorted(os.listdir(os.path.join(self._folder, name)))

    def _is_opaque(self, name: bytes) -> bool:
        for key in _OPAQUE:
            try:
                return os.getxattr(os.path.join(self._folder, name), key, follow_symlinks=False) == b"y"
            except OSError:
                continue
        return False

    def _empty(self, name: bytes) -> None:
        self.removed += 1
        self._head(tarfile.TarInfo(os.fsdecode(name)))

    def _member(self, name: bytes, found: os.stat_result) -> None:
        path, mode = os.path.join(self._folder, name), found.st_mode
        if stat.S_ISCHR(mode) and found.st_rdev == 0 and self._layered:
            folder, _, last = name.rpartition(b"/")
            self._empty(os.path.join(folder, b".wh." + last))
            return
        head = tarfile.TarInfo(os.fsdecode(name))
        head.mode, head.mtime = stat.S_IMODE(mode), self._time(found)
        head.uid, head.gid = owner_of(path) if self._layered else _owners(found)
        if stat.S_ISDIR(mode):
            head.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(mode):
            head.type, head.linkname, head.mode = tarfile.SYMTYPE, os.fsdecode(os.readlink(path)), 0o777
        elif stat.S_ISFIFO(mode):
            head.type = tarfile.FIFOTYPE
        elif stat.S_ISREG(mode):
            self._file(path, name, head, found)
            return
        else:
            self.left_out.append(f"/{head.name}: a device or socket")
            return
        self._head(head)

    def _file(self, path: bytes, name: bytes, head: tarfile.TarInfo, found: os.stat_result) -> None:
        self.files += 1
        first = self._links.setdefault((found.st_dev, found.st_ino), name) if found.st_nlink > 1 else name
        if first != name:
            head.type, head.linkname = tarfile.LNKTYPE, os.fsdecode(first)
            self._head(head)
            return
        head.size = found.st_size
        capability = _capability(path)
        if capability:
            head.pax_headers = {f"SCHILY.xattr.{_CAPABILITY}": capability.decode("utf-8", "surrogateescape")}
        self._head(head)
        left = head.size
        with open(path, "rb", buffering=0) as file:
            while left:
                piece = file.read(min(left, _PIECE))
                if not piece:
                    raise OSError(5, "the file became shorter while it was read", os.fsdecode(path))
                left -= len(piece)
                self._put(piece)
        self._put(bytes(-head.size % tarfile.BLOCKSIZE))

    def _time(self, found: os.stat_result) -> int:
        new = found.st_mtime_ns >= self._since
        return self._epoch if new else max(0, min(int(found.st_mtime), self._epoch))

    def _head(self, head: tarfile.TarInfo) -> None:
        self._put(head.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self._out.write(data)
        self.bytes += len(data)


def sweep(folder: bytes) -> None:
    """Remove from a layer what its tools wrote for themselves."""
    for pattern in SWEPT:
        place, _, last = pattern.rpartition("/")
        inside = os.path.join(folder, os.fsencode(place))
        try:
            names = os.listdir(inside) if not os.path.islink(inside) else []
        except OSError:
            continue
        for name in fnmatch.filter(map(os.fsdecode, names), last):
            path = os.path.join(inside, os.fsencode(name))
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                shutil.rmtree(path, ignore_errors=True)
            elif not stat.S_ISCHR(mode):
                os.unlink(path)


def takes_attributes(folder: bytes) -> bool:
    """Return whether the file system of a folder keeps owners."""
    try:
        os.setxattr(folder, OWNER, b"0:0")
        os.removexattr(folder, OWNER)
        return True
    except OSError:
        return False


def _owners(found: os.stat_result) -> tuple[int, int]:
    """Return the owner as it is; whom this namespace does not know is root, whose the files are then."""
    uid, gid = found.st_uid, found.st_gid
    return (0 if uid in (_UNKNOWN_ID, os.getuid()) else uid), (0 if gid in (_UNKNOWN_ID, os.getgid()) else gid)


def _capability(path: bytes) -> bytes:
    """Return a file's capabilities as they hold outside of a user's namespace: the form with its root becomes that without."""
    try:
        found = os.getxattr(path, _CAPABILITY, follow_symlinks=False)
    except OSError:
        return b""
    return bytes([found[0], found[1], found[2], 2]) + found[4:20] if found[3:4] == b"\x03" else found
