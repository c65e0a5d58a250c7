"""Mounts of one source on one target, with what an EDF can say of them."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FLAGS = {"nosuid": kernel.NOSUID, "nodev": kernel.NODEV, "noexec": kernel.NOEXEC, "ro": kernel.RDONLY}
_PROPAGATION = {
    "private": kernel.PRIVATE,
    "slave": kernel.SLAVE,
    "shared": kernel.SHARED,
    "unbindable": kernel.UNBINDABLE,
}
# What a mount is already, as statvfs has it, and the flags that keep it: a user namespace may not take one away.
_KEPT = (
    (1, kernel.RDONLY),
    (2, kernel.NOSUID),
    (4, kernel.NODEV),
    (8, kernel.NOEXEC),
    (1024, kernel.NOATIME),
    (2048, kernel.NODIRATIME),
    (4096, kernel.RELATIME),
)


def bind(source: str, target: str, flags: Iterable[str] = (), inner: Iterable[str] = ()) -> None:
    """Mount a folder or file of the host, with what is mounted below it; `ro` and the like hold for all of that.

    Args:
        source: an absolute path.
        target: an absolute path that exists.
        flags: as the EDF has them.
        inner: the paths below the source, from it on, at which the host has mounts.

    Raises:
        Refused: the kernel would not.
    """
    try:
        kernel.mount(source, target, None, kernel.BIND | kernel.REC)
        added = 0
        for flag in flags:
            added |= _FLAGS.get(flag, 0)
        if added:
            for path in (target, *(target + each for each in inner)):
                restrict(path, added)
        set_propagation(target, flags)
    except OSError as error:
        raise EngineRefused(f"the mount on {target} failed: {error.strerror}", given=source) from None


def restrict(path: str, added: int) -> None:
    """Add flags to a mount that is there, keeping those that it has.

    Raises:
        OSError: the kernel would not.
    """
    now = os.statvfs(path).f_flag
    kept = 0
    for bit, flag in _KEPT:
        if now & bit:
            kept |= flag
    if not kept & (kernel.NOATIME | kernel.RELATIME):
        kept |= kernel.STRICTATIME
    kernel.mount(None, path, None, kernel.BIND | kernel.REMOUNT | kept | added)


def set_propagation(target: str, flags: Iterable[str]) -> None:
    """Set what of later mounts is seen on the other side; unsaid: the host's are seen here and not the other way.

    Raises:
        OSError: the kernel would not.
    """
    for flag in flags:
        single = flag[1:] if flag.startswith("r") and flag[1:] in _PROPAGATION else flag
        if single in _PROPAGATION:
            kernel.mount(None, target, None, _PROPAGATION[single] | (kernel.REC if single != flag else 0))


def mount_points() -> list[str]:
    """Return where something is mounted, in the order in which it was."""
    with open("/proc/self/mountinfo", "rb") as file:
        fields = [line.split(b" ", 5)[4] for line in file]
    return [os.fsdecode(_unescaped(field)) for field in fields]


def _unescaped(field: bytes) -> bytes:
    """Return a path as it is: the kernel writes blanks, line ends and backslashes as octal numbers."""
    if b"\\" not in field:
        return field
    for escape, char in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        field = field.replace(escape, char)
    return field
