"""Views: squashfs files that bring software with them, mounted where they belong and entered by variables.

A file of uenv says both itself, in `meta/env.json` (eth-cscs/uenv, `src/uenv/meta.cpp`): `mount`, and for each of `views`
lists of changes to variables. Any other file is a prefix, such as a packed virtual environment or conda prefix.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordee.core.words import did_you_mean
from cordee.machine.foreign_files import parse_json
from cordee.systems.environments.edf.stack import StackView
from cordee.systems.environments.images.enroot import reader_of
from cordee.systems.environments.images.squash import is_squashfs
from cordee.systems.environments.node.document import SQUASHFS_FLAG, ContainerMount, ContainerRoot
from cordee.systems.environments.node.patches import APPEND, PREPEND, SET, UNSET

META, DEFAULT_TARGET = "meta/env.json", "/user-environment"
_VENV, _CONDA = "pyvenv.cfg", "conda-meta/history"


class ViewError(Exception):
    """A view that cannot be laid; `given`, `allowed` and `next` are as in a Finding."""

    def __init__(self, text: str, given: str, allowed: list[str] | None, next: str) -> None:
        super().__init__(text)
        self.text, self.given, self.allowed, self.next = text, given, allowed, next


@dataclass(frozen=True)
class LaidView:
    """A view as the environment has it: its mount, and what it does to variables; `label` names it for people."""

    label: str
    mount: ContainerMount
    patches: tuple[tuple[str, str, str], ...] = ()


def lay(asked: StackView) -> LaidView:
    """Return what a view adds to an environment. A file that is not on this machine is mounted where it is asked to be, and
    a machine that lacks it says so.

    Raises:
        ViewError: the file has no such view, or says nothing of where it belongs.
    """
    label = f"{asked.file}{':' + ','.join(asked.views) if asked.views else ''}"
    if not os.path.exists(asked.file):
        target = asked.target or DEFAULT_TARGET
        return LaidView(label, ContainerMount(asked.file, target, (SQUASHFS_FLAG,)))
    if not is_squashfs(Path(asked.file)):
        hint = "give the squashfs file of a uenv, or one that `cordee env pack` has made; copy it again if it was one"
        raise ViewError("is no squashfs file", asked.file, None, hint)
    read = reader_of(ContainerRoot("squashfs", asked.file))
    if read is None:
        raise ViewError(
            "cannot be looked into: unsquashfs is missing", asked.file, None, "install unsquashfs (squashfs-tools)"
        )
    text = read(META)
    if text is None:
        return _prefix(asked, label, {name: read(name) is not None for name in (_VENV, _CONDA)})
    try:
        meta = parse_json(text)
        own, known = str(meta.get("mount") or DEFAULT_TARGET), dict(meta.get("views") or {})
        found = [patch for name in asked.views if name in known for patch in _patches(known[name])]
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise ViewError(
            f"has a damaged {META}: {error}", asked.file, None, "ask whoever made the file for another"
        ) from None
    for name in asked.views:
        if name not in known:
            raise ViewError(f"has no view {name}", name, list(known), did_you_mean(name, known, "take it out"))
    if asked.target and asked.target != own and found:
        text = f"is mounted at {asked.target}, and its views are made for {own}"
        raise ViewError(text, asked.target, [own], "leave the target out")
    return LaidView(label, ContainerMount(asked.file, asked.target or own, (SQUASHFS_FLAG,)), tuple(found))


def refuse_covered(view: LaidView, before: Sequence[LaidView]) -> None:
    """Refuse a view whose mount would hide the file of one before it.

    Raises:
        ViewError: it would.
    """
    for other in before:
        if other.mount.target == view.mount.target and other.mount.source != view.mount.source:
            text = f"would be mounted at {view.mount.target}, where {other.mount.source} is, and hide it"
            raise ViewError(text, view.mount.source, None, "take one of the two out")


def _prefix(asked: StackView, label: str, has: Mapping[str, bool]) -> LaidView:
    if asked.views:
        text = f"has no views: there is no {META} in it"
        raise ViewError(text, asked.views[0], None, "give FILE:/TARGET for a packed environment, or the file of a uenv")
    if not asked.target:
        raise ViewError(
            "does not say where it belongs",
            asked.file,
            None,
            f"write {asked.file}:/TARGET, as `cordee env pack` shows it for its files",
        )
    named = [
        (SET, name, asked.target) for name, there in (("VIRTUAL_ENV", _VENV), ("CONDA_PREFIX", _CONDA)) if has[there]
    ]
    patches = ((PREPEND, "PATH", f"{asked.target}/bin"), *named)
    return LaidView(label, ContainerMount(asked.file, asked.target, (SQUASHFS_FLAG,)), patches)


def _patches(view: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    values = (view.get("env") or {}).get("values") or {}
    found: list[tuple[str, str, str]] = []
    for name, updates in (values.get("list") or {}).items():
        for update in updates:
            operation = {"append": APPEND, "prepend": PREPEND}.get(update["op"], SET)
            if update["op"] == "unset":
                operation = UNSET
            found.append((operation, name, ":".join(update.get("value") or ())))
    for name, value in (values.get("scalar") or {}).items():
        found.append((UNSET, name, "") if value is None else (SET, name, str(value)))
    return found
