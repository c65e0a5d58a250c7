"""What this machine lacks to run an environment, found out by trying where trying is cheap."""

from __future__ import annotations

import os
import subprocess

from cordee.systems.environments.node.document import SQUASHFS_FLAG, Environment
from cordee.systems.environments.node.engines._base import MissingCapability
from cordee.systems.environments.node.engines.namespace.boot import first_words
from cordee.systems.environments.node.engines.namespace.isolation import OTHER_ENGINE
from cordee.systems.environments.node.engines.namespace.root import squashfs

# A probe makes namespaces and mounts and ends: it takes milliseconds, or the kernel is stuck.
_PROBE_S = 20.0
_MORE_TRIALS = 2
OVERLAY_NEXT = "Linux 5.11 lets users do this; take another engine: --engine podman"


def missing(environment: Environment) -> list[MissingCapability]:
    """Return what this machine lacks, the namespaces that everything else needs first."""
    found = list(_namespaces(environment))
    found += _squashfs(environment)
    found += [
        MissingCapability(
            "mount-source", f"the source of a mount does not exist: {mount.source}", "make it, or take the mount out"
        )
        for mount in environment.mounts
        if not os.path.exists(mount.source)
    ]
    return found + _devices(environment)


def _namespaces(environment: Environment) -> list[MissingCapability]:
    kind = environment.root.kind if environment.root else "folder"
    try:
        done = _tried(kind)
        for _ in range(_MORE_TRIALS):
            if done.returncode == 0 or done.stdout.strip() or done.stderr.strip():
                break
            done = _tried(kind)  # it was killed before it could say a word, which says nothing of namespaces
    except (OSError, subprocess.TimeoutExpired) as error:
        return [MissingCapability("user-namespaces", f"namespaces could not be tried out: {error}", OTHER_ENGINE)]
    if done.returncode == 0:
        return []
    capability, _, text = done.stdout.strip().partition(" ")
    following = {"user-namespaces": OTHER_ENGINE, "overlay": OVERLAY_NEXT}.get(
        capability, "take another engine: --engine podman"
    )
    silent = f"the trial ended with code {done.returncode} and no words"
    return [MissingCapability(capability or "user-namespaces", text or done.stderr.strip() or silent, following)]


def _tried(kind: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*first_words(), "probe", kind],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PROBE_S,
        check=False,
    )


def _squashfs(environment: Environment) -> list[MissingCapability]:
    wanted = environment.root is not None and environment.root.kind == "squashfs"
    if not wanted and not any(SQUASHFS_FLAG in mount.flags for mount in environment.mounts):
        return []
    if os.geteuid() == 0 and os.path.exists("/dev/loop-control"):
        return []
    found = []
    if squashfs.program() is None:
        text = "squashfuse is not installed, and only root can mount a squashfs file without it"
        found.append(MissingCapability("squashfuse", text, f"install squashfuse; {squashfs.INSTEAD}"))
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        found.append(
            MissingCapability(
                "fuse", "/dev/fuse cannot be opened by this user", f"ask for /dev/fuse; {squashfs.INSTEAD}"
            )
        )
    return found


def _devices(environment: Environment) -> list[MissingCapability]:
    from cordee.systems.environments.node.engines.namespace.gpus.drivers import wanted_edits
    from cordee.systems.environments.node.engines.namespace.gpus.edits import Unknown

    try:
        wanted_edits(list(environment.devices))
    except Unknown as unknown:
        hint = unknown.next or "take the device out of the EDF"
        return [MissingCapability(unknown.capability, unknown.text, hint, unknown.given)]
    return []
