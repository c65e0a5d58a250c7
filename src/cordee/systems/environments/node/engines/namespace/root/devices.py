"""/dev: the files that programs rely on, terminals, shared memory, and the machine's networks."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace import kernel

_BASE = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
# What jobs use beside GPUs, which `gpus` finds: InfiniBand and other networks, memory shared between processes, user-space file systems.
_SHARED = ("infiniband", "xpmem", "knem", "gdrdrv", "cxi", "hfi1_", "fuse")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "core": "/proc/kcore"}


def mount_devices(target: str, host: str = "/dev") -> None:
    """Mount a /dev at `target`. Terminals and shared memory are the host's, so that what was opened outside stays valid.

    Raises:
        OSError: the kernel would not.
    """
    kernel.mount("tmpfs", target, "tmpfs", kernel.NOSUID, "mode=0755")
    for name in (*_BASE, *_found(host)):
        bind_device(f"{host}/{name}", f"{target}/{name}")
    for name in ("pts", "shm", "mqueue", "hugepages"):
        if os.path.isdir(f"{host}/{name}"):
            bind_device(f"{host}/{name}", f"{target}/{name}")
    for name, goal in _LINKS.items():
        os.symlink(goal, f"{target}/{name}")


def bind_device(source: str, target: str) -> None:
    """Bind a device, or a folder of them; one that the host lacks is left out.

    Raises:
        OSError: the kernel would not.
    """
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    else:
        return
    kernel.mount(source, target, None, kernel.BIND | kernel.REC)


def _found(host: str) -> list[str]:
    return sorted(name for name in os.listdir(host) if name.startswith(_SHARED))
