"""Devices in podman's containers: as the embedded engine finds them, so that both give the same; what it cannot do, by podman."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace.gpus.drivers import wanted_edits
from cordee.systems.environments.node.engines.namespace.gpus.edits import Edits, Unknown

# What jobs use beside GPUs: fast networks, memory shared between processes, user-space file systems.
_SHARED = ("infiniband", "xpmem", "knem", "gdrdrv", "cxi", "hfi1_", "fuse")
_PODMANS_OWN = ("cdi", "cdi-hook")


def devices_for(wanted: list[str], host: str = "") -> tuple[Edits, list[str]]:
    """Return what an EDF's devices and the machine's own add to a container, and CDI names that are left to podman.

    Those are names whose CDI files ask for hooks, or are in a form, that only podman knows.

    Args:
        wanted: CDI names or paths below /dev.
        host: a folder that stands for the host's root; empty: the host.

    Raises:
        Unknown: the machine does not have one.
    """
    left: list[str] = []
    try:
        edits = wanted_edits(wanted, host)
        if edits.hooks:
            raise Unknown("cdi-hook", "hooks of CDI files are run by podman itself")
    except Unknown as unknown:
        if unknown.capability not in _PODMANS_OWN:
            raise
        left = [device for device in wanted if not device.startswith("/")]
        edits = Edits()
        edits.nodes = [(host + path, path) for path in wanted if path.startswith("/")]
    shared = sorted(name for name in os.listdir(f"{host}/dev") if name.startswith(_SHARED))
    edits.nodes += [(f"{host}/dev/{name}", f"/dev/{name}") for name in shared]
    return edits, left
