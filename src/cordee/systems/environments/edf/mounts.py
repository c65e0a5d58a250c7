"""Mounts as an EDF has them: `SOURCE:TARGET[:FLAGS]`, or a source alone."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from cordee.core.words import did_you_mean
from cordee.systems.environments.edf.expand import expand
from cordee.systems.environments.node.document import SQUASHFS_FLAG, ContainerMount

FORMS = "SOURCE, SOURCE:TARGET or SOURCE:TARGET:FLAGS, flags joined by +"
PATHS = "a path that begins with / or ./"
PROPAGATION = ("private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable")
FLAGS = (
    *("ro", "rw", SQUASHFS_FLAG, "bind", "rbind", *PROPAGATION),
    *("nosuid", "suid", "nodev", "dev", "noexec", "exec", "noatime", "nodiratime", "relatime", "strictatime"),
)


class MountError(Exception):
    """A mount that cannot be understood; `given`, `allowed` and `next` are as in a Finding."""

    def __init__(self, text: str, given: str, allowed: str, next: str) -> None:
        super().__init__(text)
        self.text, self.given, self.allowed, self.next = text, given, allowed, next


def parse_mount(text: str, cwd: Path, variables: Mapping[str, str], lenient: bool = False) -> ContainerMount | None:
    r"""Return the mount that a text of an EDF stands for, None when nothing is left of it after expansion.

    Colons separate, except within `${...}` and after a backslash. A variable may hold a whole mount.
    `mount_text` is the way back.

    Args:
        text: before expansion.
        cwd: where relative paths begin.
        variables: for expansion.
        lenient: flags that are not known are kept.

    Raises:
        MountError: it is of no known form.
        ExpansionError: one of its variables cannot be filled in.
    """
    parts = [expand(part, variables) for part in split_parts(text)]
    if len(parts) == 1 and "\\" not in text:
        parts = split_parts(parts[0])
    if parts == [""]:
        return None
    if len(parts) > 3:
        raise MountError(f"has {len(parts)} parts", text, FORMS, r"write \: for a colon that belongs to a path")
    source = _absolute(parts[0], cwd, "source", text)
    target = os.path.normpath(_absolute(parts[1], cwd, "target", text) if len(parts) > 1 else source)
    return ContainerMount(source, target, _flags(parts[2], text, lenient) if len(parts) > 2 else ())


def mount_text(mount: ContainerMount) -> str:
    """Return the text by which an EDF says this mount."""
    parts = [mount.source, mount.target] if mount.flags or mount.target != mount.source else [mount.source]
    texts = [part.replace("\\", "\\\\").replace(":", "\\:").replace("$", "$$") for part in parts]
    return ":".join([*texts, "+".join(mount.flags)] if mount.flags else texts)


def absolute(path: str, cwd: Path) -> str:
    """Return a path of an EDF from the root on: one that begins with `.` is relative to `cwd`.

    `..` in other paths is left to the kernel, as what stands before it may be a link.
    """
    if path.startswith("."):
        return os.path.normpath(cwd / path)
    return re.sub(r"/(?:\.?/)+|/\.$", "/", path).rstrip("/") or "/" if path.startswith("/") else path


def path_hint(path: str) -> str:
    """Return what to write instead of a text that is no path."""
    bare = re.match(r"\$(\w+)", path)
    if bare:
        return f"write ${{{bare[1]}}} instead of ${bare[1]}"
    return f"write ${{HOME}}{path[1:]}" if path.startswith("~") else f"write ./{path}"


def _absolute(path: str, cwd: Path, what: str, text: str) -> str:
    if path.startswith(("/", ".")):
        return absolute(path, cwd)
    if not path:
        raise MountError(f"has no {what}", text, FORMS, f"name the {what}")
    raise MountError(f"has a {what} that is no path: {path}", text, PATHS, path_hint(path))


def _flags(text: str, given: str, lenient: bool) -> tuple[str, ...]:
    flags = tuple(dict.fromkeys(flag for flag in re.split(r"[+,]", text) if flag))
    if SQUASHFS_FLAG in flags and len(flags) > 1:
        raise MountError(
            f"joins {SQUASHFS_FLAG} with other flags", given, f"{SQUASHFS_FLAG} alone", "leave the others out"
        )
    for flag in flags if not lenient else ():
        if flag not in FLAGS and not flag.startswith("x-"):
            hint = did_you_mean(flag, FLAGS, f"remove {flag}")
            raise MountError(f"has a flag that is not known: {flag}", given, ", ".join(FLAGS), hint)
    return flags


def split_parts(text: str) -> list[str]:
    r"""Return the parts between colons; those within `${...}` separate nothing, `\:` is a colon and `\\` a backslash."""
    if "\\" not in text and "${" not in text:
        return text.split(":")
    parts, depth, at = [""], 0, 0
    while at < len(text):
        step = 2 if text.startswith(("$$", "${", "\\:", "\\\\"), at) else 1
        piece = text[at : at + step]
        if piece == "${":
            depth += 1
        elif piece == "}" and depth:
            depth -= 1
        if piece == ":" and not depth:
            parts.append("")
        else:
            parts[-1] += piece[1:] if piece.startswith("\\") and not depth and step == 2 else piece
        at += step
    return parts
