"""Mounts of one source on one target, with what an EDF can say of them."""

from __future__ import annotations

import os

from cordee.environment.engines.namespace import kernel
from cordee.environment.engines.namespace.kernel import Refused

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


def bind(source: str, target: str, flags: Iterable[str] = ()) -> None:
    """Mount a folder or file of the host, with what is mounted below it; `ro` and the like hold for all of that.

    Raises:
        Refused: the kernel would not.
    """
    try:
        kernel.mount(source, target, None, kernel.BIND | kernel.REC)
        added = 0
        for flag in flags:
            added |= _FLAGS.get(flag, 0)
        if added:
            for path in (target, *_below(target)):
                restrict(path, added)
        set_propagation(target, flags)
    except OSError as error:
        raise Refused(f"the mount on {target} failed: {error.strerror}", given=source) from None


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


def _below(target: str) -> list[str]:
    """Return the mounts below a path, in the order in which they were made."""
    real = os.path.realpath(target)
    found = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            path = os.fsdecode(line.split(b" ")[4].decode("unicode_escape").encode("latin-1"))
            if path.startswith(f"{real}/"):
                found.append(path)
    return found
