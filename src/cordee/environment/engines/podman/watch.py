"""The process that ends what is inside a container when its holder has ended."""

from __future__ import annotations

import os
import time

from cordee.environment.engines.namespace import kernel


def start_watch() -> int:
    """Start it, before anything of the host is left; return where to write the number of the container's process."""
    reading, told = os.pipe()
    if os.fork():
        os.close(reading)
        return told
    try:
        os.close(told)
        os.setsid()
        silent = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(silent, number)
        os.chdir("/")
        kernel.block_signals()
        pid = os.read(reading, 4096).decode()
        if pid:
            # Kept open, the namespace keeps its number: a later one that got it would be taken for it.
            os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            os.read(reading, 1)
            while _kill_inside(namespace):
                time.sleep(0.01)
    finally:
        os._exit(0)


def _kill_inside(namespace: str) -> bool:
    """Kill every process of a mount namespace; return whether there was one."""
    found = False
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.readlink(f"/proc/{name}/ns/mnt") == namespace:
                os.kill(int(name), kernel.SIGKILL)
                found = True
        except OSError:
            continue
    return found
