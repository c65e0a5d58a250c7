"""Leaving the host's namespaces: as root with its rights, as anybody through a user namespace."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

OTHER_ENGINE = (
    "take an engine with rights of its own: apptainer where it is installed setuid, or the scheduler's (step); "
    "or ask the site to allow user namespaces"
)


def leave_host() -> bool:
    """Move this process into mount (and, without root's rights, user) namespaces of its own; return whether into a user's.

    Nothing that is mounted here afterwards is seen by the host; what the host mounts later is seen here.

    Raises:
        Refused: user namespaces are switched off.
    """
    user = os.geteuid() != 0
    if not user:
        try:
            kernel.unshare(kernel.NEWNS)
        except PermissionError:
            user = True
    if user:
        enter_namespaces(os.geteuid(), kernel.NEWUSER | kernel.NEWNS)
    else:
        kernel.mount(None, "/", None, kernel.REC | kernel.SLAVE)
    return user


def enter_namespaces(number: Optional[int], flags: int) -> None:
    """Move this process into new namespaces, mounts among them.

    Args:
        number: of its user there, who is the only one (0: root); None: the users stay as they are.
        flags: of unshare(2).

    Raises:
        EngineRefused: user namespaces are switched off.
    """
    uid, gid = os.geteuid(), os.getegid()
    try:
        kernel.unshare(flags)
        if number is not None:
            kernel.let_own_processes_look()
            maps = (
                ("setgroups", "deny"),
                ("uid_map", f"{number} {uid} 1"),
                ("gid_map", f"{gid if number else 0} {gid} 1"),
            )
            for name, content in maps:
                with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
                    file.write(content)
        # Where the namespace is given and its rights are not (AppArmor), this is the first to fail.
        kernel.mount(None, "/", None, kernel.REC | kernel.SLAVE)
    except OSError as error:
        raise EngineRefused(
            f"user namespaces cannot be used here: {error.strerror}", given=why(), next=OTHER_ENGINE
        ) from None


def why() -> str:
    """Return which switch of the kernel is against user namespaces, as far as it can be seen."""
    switches = (
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    )
    for path, off in switches:
        try:
            with open(path, encoding="utf-8") as file:
                value = file.read().strip()
        except OSError:
            continue
        if value == off:
            return f"{path} is {value}"
    return "no switch is off: a sandbox or a container around this process may forbid them"
