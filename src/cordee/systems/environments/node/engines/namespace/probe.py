"""Whether namespaces and an overlay can be had here: tried, in a process that ends with all of it."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.isolation import leave_host
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.root.overlay import join


def probe(kind: str) -> int:
    """Try what a root of that kind needs; print a word and the reason for what is missing; return 0 when nothing is."""
    try:
        user = leave_host()
    except (EngineRefused, OSError) as error:
        given = f" ({error.given})" if isinstance(error, EngineRefused) and error.given else ""
        return _say("user-namespaces", f"{error}{given}")
    try:
        kernel.unshare(kernel.NEWPID)
        child = os.fork()
        if child == 0:
            os._exit(_inside(kind, user))
        return kernel.exit_code(os.waitpid(child, 0)[1])
    except OSError as error:
        return _say("pid-namespaces", str(error))


def _inside(kind: str, user: bool) -> int:
    stage = "/tmp"
    try:
        kernel.mount("proc", "/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
    except OSError as error:
        return _say("proc", f"a /proc of its own cannot be mounted: {error.strerror}")
    if kind == "host":
        return 0
    try:
        kernel.mount("cordee", stage, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755")
        for name in ("image", "layer", "work", "root"):
            os.mkdir(f"{stage}/{name}")
        join(stage, user, writable=True)
    except (EngineRefused, OSError) as error:
        return _say("overlay", str(error))
    return 0


def _say(capability: str, text: str) -> int:
    os.write(1, os.fsencode(f"{capability} {text}\n"))
    return 1
