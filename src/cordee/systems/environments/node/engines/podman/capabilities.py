"""What a machine lacks to run an environment with podman."""

from __future__ import annotations

import os
import shutil

from cordee.systems.environments.node.document import SQUASHFS_FLAG, Environment
from cordee.systems.environments.node.engines._base import MissingCapability
from cordee.systems.environments.node.engines.podman import pause

_RUNTIMES = ("runc", "crun", "crun-vm", "runsc", "kata-runtime")


def missing(environment: Environment) -> list[MissingCapability]:
    """Return what is missing, with what to do about it."""
    found = []
    root = environment.root
    if root is not None and root.kind == "host":
        found.append(
            MissingCapability(
                "image", "podman runs images, and this environment names none", "take the engine namespace"
            )
        )
    if shutil.which("podman") is None:
        found.append(
            MissingCapability("podman", "podman is not on PATH", "install podman, or take the engine namespace")
        )
    elif not any(shutil.which(name) for name in _RUNTIMES):
        found.append(
            MissingCapability("oci-runtime", "podman has no OCI runtime: runc and crun are not on PATH", "install runc")
        )
    if not pause.program():
        machine = os.uname().machine
        found.append(
            MissingCapability(
                "machine", f"podman's containers are not made for {machine} here", "take the engine namespace"
            )
        )
    if environment.overlay:
        text = "a persistent overlay is kept by the engine namespace alone"
        found.append(MissingCapability("overlay", text, "take the engine namespace, or [stack] overlay out"))
    if os.geteuid() != 0:
        found += _missing_for_user(environment)
    found += [
        MissingCapability(
            "mount-source",
            f"the source of a mount does not exist: {mount.source}",
            "make it, or take it out of the EDF",
        )
        for mount in environment.mounts
        if not os.path.exists(mount.source)
    ]
    return found + _devices(environment)


def _devices(environment: Environment) -> list[MissingCapability]:
    from cordee.systems.environments.node.engines.namespace.gpus.edits import Unknown
    from cordee.systems.environments.node.engines.podman.devices import devices_for

    try:
        devices_for(list(environment.devices))
    except Unknown as unknown:
        hint = unknown.next or "take the device out of the EDF"
        return [MissingCapability(unknown.capability, unknown.text, hint, unknown.given)]
    return []


def _missing_for_user(environment: Environment) -> list[MissingCapability]:
    from cordee.systems.environments.node.engines.namespace.root.squashfs import program

    found = []
    if _switched_off("/proc/sys/user/max_user_namespaces", "0") or _switched_off(
        "/proc/sys/kernel/unprivileged_userns_clone", "0"
    ):
        text = "user namespaces are switched off, and podman without root needs them"
        found.append(MissingCapability("user-namespaces", text, "ask the site to allow user namespaces"))
    squashfs = environment.root is not None and environment.root.kind == "squashfs"
    if squashfs or any(SQUASHFS_FLAG in mount.flags for mount in environment.mounts):
        if program() is None:
            text = "squashfuse is not installed, and without it only root can mount a squashfs file"
            found.append(MissingCapability("squashfuse", text, "install squashfuse, or unpack the image into a folder"))
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            found.append(MissingCapability("fuse", "/dev/fuse cannot be opened", "ask the site for /dev/fuse"))
    return found


def _switched_off(path: str, off: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip() == off
    except OSError:
        return False
