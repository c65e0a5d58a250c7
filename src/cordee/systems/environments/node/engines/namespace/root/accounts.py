"""What a root has to know of the host: its users, names of machines."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Optional

    from cordee.systems.environments.node.engines.namespace.root.tree import RootTree

_COPIED = ("/etc/resolv.conf", "/etc/hosts")


def write_accounts(
    tree: RootTree, uid: Optional[int] = None, gid: Optional[int] = None, others: Iterable[str] = ()
) -> None:
    """Write, over what the image has: the host's resolv.conf and hosts, and its user and group where the image lacks them.

    Args:
        tree: where to write.
        uid, gid: of the user and the group (None: those of this process).
        others: names of more users; those that the host does not know are left out.

    Raises:
        OSError: the layer cannot be written.
    """
    for path in _COPIED:
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                content = file.read()
        except OSError:
            continue
        tree.write(path, content)
    user, group = os.getuid() if uid is None else uid, os.getgid() if gid is None else gid
    _add_line(tree, "/etc/passwd", user, lambda: _user(user, group))
    _add_line(tree, "/etc/group", group, lambda: _group(group))
    if others:
        import pwd

        for found in pwd.getpwall():
            if found[0] in others and found[2] != user:
                line = ":".join(map(str, found))
                _add_line(tree, "/etc/passwd", found[2], line.__str__)


def _add_line(tree: RootTree, path: str, number: int, line: Callable[[], str]) -> None:
    """Add a line to a file of accounts unless it has one of that number."""
    content = tree.read(path)
    rows = [row.split(":") for row in content.splitlines()]
    if any(len(row) > 2 and row[2] == str(number) for row in rows):
        return
    added = line()
    # A name stands for one number: the image's own user of the same name would be found instead.
    kept = "".join(f"{row}\n" for row in content.splitlines() if row.split(":")[0] != added.split(":")[0])
    tree.write(path, f"{kept}{added}\n")


def _user(uid: int, gid: int) -> str:
    import pwd

    try:
        name, _, _, _, gecos, home, _ = pwd.getpwuid(uid)
    except KeyError:
        name, gecos, home = os.environ.get("USER") or f"user{uid}", "", os.environ.get("HOME") or "/"
    return f"{name}:x:{uid}:{gid}:{gecos}:{home}:/bin/sh"


def _group(gid: int) -> str:
    import grp

    try:
        name = grp.getgrgid(gid)[0]
    except KeyError:
        name = f"group{gid}"
    return f"{name}:x:{gid}:"
