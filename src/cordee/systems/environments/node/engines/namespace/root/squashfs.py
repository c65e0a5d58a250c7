"""Squashfs files, mounted: by the kernel through a loop device as root, by squashfuse as anybody."""

from __future__ import annotations

import fcntl
import os
import stat
import struct

from cordee.machine.foreign_files import regular
from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_MAGIC = b"hsqs"
_SUPERBLOCK_BYTES = 96
_LOOP_SET_FD, _LOOP_SET_STATUS64, _LOOP_CONFIGURE, _LOOP_CTL_GET_FREE = 0x4C00, 0x4C04, 0x4C0A, 0x4C82
_LOOP_INFO_BYTES, _LOOP_FLAGS_AT, _READ_ONLY, _AUTOCLEAR = 232, 52, 1, 4
_TRIES = 64
PROGRAMS = ("squashfuse_ll", "squashfuse")
# The quicker one has no words for owners.
MAPPING = ("squashfuse",)
INSTEAD = "or unpack the image into a folder (unsquashfs), or take another engine: --engine podman"
_FOLDERS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_BY_NAME = {b"\x7fELF": "a program", b"\x1f\x8b": "a gzip file", b"PK\x03\x04": "a zip file", b"SIF_": "a SIF image"}


def open_checked(at: str, path: str) -> int:
    """Open the squashfs file that lies `at`, which a person knows as `path`; one that is none or is cut off is refused.

    Raises:
        Refused: with what it is instead.
    """
    try:
        backing = regular(at)
        head = os.pread(backing, _SUPERBLOCK_BYTES, 0)
    except OSError as error:
        raise EngineRefused(f"the squashfs file cannot be read: {error.strerror}", given=path) from None
    size = os.fstat(backing).st_size
    if head[:4] != _MAGIC:
        what = next((name for magic, name in _BY_NAME.items() if head.startswith(magic)), "something else")
        raise EngineRefused(
            f"it is not a squashfs file but {what if head else 'empty'}",
            given=path,
            next="give a squashfs file, a folder with a root, or import it: cordee env pull",
        )
    used = struct.unpack_from("<Q", head, 40)[0] if len(head) == _SUPERBLOCK_BYTES else _SUPERBLOCK_BYTES
    if size < used:
        raise EngineRefused(
            f"the squashfs file is cut off: it says {used} bytes and has {size}",
            given=path,
            next="copy or import it again",
        )
    return backing


def mount_squashfs(at: str, target: str, as_root: bool, path: str, own: bool = False) -> Optional[int]:
    """Mount the file `at` at `target`, read-only; return the process that serves it, None where the kernel does.

    Args:
        at: where the file is found.
        target: a folder.
        as_root: whether the kernel may be asked.
        path: what a person knows the file as.
        own: whether a user is to own what is in it, whoever does in the file, where a program here can do that; what others
            own cannot be changed in a layer above it.

    Raises:
        Refused: it is no sound squashfs file, or nothing here can mount it.
    """
    backing = open_checked(at, path)
    try:
        if as_root:
            try:
                _by_kernel(backing, target)
                return None
            except OSError as error:
                if program() is None or not os.path.exists("/dev/fuse"):
                    raise EngineRefused(f"the kernel could not mount the file: {error.strerror}", given=path) from None
        server = _by_squashfuse(backing, target, path, program())
        mapping = _find(MAPPING) if own and os.stat(target).st_uid != os.getuid() else None
        if mapping is None:
            return server
        kernel.end([server])
        kernel.unmount(target)
        return _by_squashfuse(backing, target, path, mapping, f"uid={os.getuid()},gid={os.getgid()}")
    finally:
        os.close(backing)


def _by_kernel(backing: int, target: str) -> None:
    for _ in range(_TRIES):
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
        finally:
            os.close(control)
        device = os.open(f"/dev/loop{number}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The kernel lets go of the file when the mount or, before there is one, this descriptor is gone.
            if _attach(device, backing):
                kernel.mount(f"/dev/loop{number}", target, "squashfs", kernel.RDONLY | kernel.NOSUID | kernel.NODEV)
                return
        finally:
            os.close(device)
    raise OSError(16, "every loop device is in use")


def _attach(device: int, backing: int) -> bool:
    """Attach a file to a loop device; False: another process was quicker."""
    info = bytearray(_LOOP_INFO_BYTES)
    struct.pack_into("<I", info, _LOOP_FLAGS_AT, _READ_ONLY | _AUTOCLEAR)
    try:
        fcntl.ioctl(device, _LOOP_CONFIGURE, struct.pack("<II", backing, 0) + bytes(info) + bytes(64))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno == 16:  # EBUSY
            return False
        if error.errno not in (22, 25):  # EINVAL, ENOTTY: a kernel before 5.8
            raise
        fcntl.ioctl(device, _LOOP_SET_FD, backing)
        fcntl.ioctl(device, _LOOP_SET_STATUS64, bytes(info))
    return True


def program() -> Optional[str]:
    """Return the path of squashfuse; None: it is not installed."""
    return _find(PROGRAMS)


def _find(names: tuple[str, ...]) -> Optional[str]:
    for folder in os.environ.get("PATH", _FOLDERS).split(":") + _FOLDERS.split(":"):
        for name in names:
            if folder.startswith("/") and os.access(f"{folder}/{name}", os.X_OK):
                return f"{folder}/{name}"
    return None


def _by_squashfuse(backing: int, target: str, path: str, found: Optional[str], options: str = "") -> int:
    if found is None:
        raise EngineRefused(
            "squashfuse is not installed, and without it only root can mount a squashfs file",
            given=path,
            next=f"install squashfuse; {INSTEAD}",
        )
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        raise EngineRefused(
            f"/dev/fuse cannot be opened: {error.strerror}",
            given=path,
            next=f"ask for /dev/fuse; {INSTEAD}",
        ) from None
    owner = f"user_id={os.getuid()},group_id={os.getgid()}"
    kernel.mount(
        "squashfuse",
        target,
        "fuse",
        kernel.RDONLY | kernel.NOSUID | kernel.NODEV,
        f"fd={device},rootmode={stat.S_IFDIR | 0o755:o},{owner},allow_other,default_permissions",
    )
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _serve(found, backing, device, parent, options)
    os.close(device)
    try:
        os.stat(f"{target}/.")
    except OSError:
        kernel.end([pid])  # one that finds the file damaged may go on serving
        raise EngineRefused(
            "squashfuse could not serve the image",
            given=path,
            next=f"it may be damaged, or {found} may be older than libfuse 3.3: try `unsquashfs -s {path}`",
        ) from None
    return pid


def _serve(found: str, backing: int, device: int, parent: int, options: str) -> None:
    """Become squashfuse; it is handed a mount that is there already, and ends with the process that started it."""
    try:
        os.setsid()
        kernel.die_with_parent()
        if os.getppid() != parent:
            return  # It was gone before this process was tied to it.
        silent = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(silent, number)
        for number in (backing, device):
            os.set_inheritable(number, True)
        os.chdir("/")
        said = ["-o", options] if options else []
        os.execv(found, [found, "-f", *said, f"/proc/self/fd/{backing}", f"/dev/fd/{device}"])
    finally:
        os._exit(127)
