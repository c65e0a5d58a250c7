"""The process that ends what is inside a held container when its holder has ended."""

from __future__ import annotations

import os
import time

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused


def start_watch() -> tuple[int, int]:
    """Start it; return where to tell it of the container and where it answers.

    A host whose mounts are gone from sight must not be looked at from inside: it starts before anything is left.
    """
    reading, told = os.pipe()
    heard, answering = os.pipe()
    if os.fork():
        os.close(reading)
        os.close(answering)
        return told, heard
    try:
        os.close(told)
        os.close(heard)
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
            os.write(answering, b"1")
            os.read(reading, 1)
            empty(namespace, set())
    finally:
        os._exit(0)


def be_watched(watch: tuple[int, int], pid: int) -> None:
    """Have the watch look at the mount namespace that a process is in now.

    Raises:
        Refused: the watch has ended.
    """
    told, heard = watch
    os.write(told, str(pid).encode())
    if not os.read(heard, 1):
        raise EngineRefused(
            "the process that ends the container with its holder could not be kept", next="start it again"
        )
    os.close(heard)


def empty(namespace: str, spared: set[int]) -> None:
    """Kill what runs in a mount namespace, except for some, until there is nothing more that may be killed."""
    while [pid for pid in _inside(namespace) - spared if _kill(pid)]:
        time.sleep(0.01)


def _inside(namespace: str) -> set[int]:
    return {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_in(pid, namespace)}


def _is_in(pid: int, namespace: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt") == namespace
    except OSError:
        return False


def _kill(pid: int) -> bool:
    """Kill a process; return False where it may not be killed."""
    try:
        os.kill(pid, kernel.SIGKILL)
    except ProcessLookupError:
        pass  # It may have left a child behind.
    except PermissionError:
        return False
    return True
