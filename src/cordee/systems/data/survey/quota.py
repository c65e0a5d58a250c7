"""Quotas of files and bytes: what `lfs quota`, `quota` and the profile say of the place where the data lies."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cordee.systems.data.survey.places import StoragePlace

_PATIENCE_S = 10.0
_BLOCK_BYTES = 1024
_NUMBER = re.compile(r"\d+\*?\Z")


@dataclass(frozen=True)
class Quota:
    """One person's use of a place and its limits, by `source`; what is not said is None."""

    source: str
    used_bytes: int | None = None
    limit_bytes: int | None = None
    used_files: int | None = None
    limit_files: int | None = None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def quotas(place: StoragePlace, path: str, file_system: tuple[str, str]) -> tuple[Quota, ...]:
    """Return what is known of quotas: of the profile, and of the tool that the file system has where it is installed.

    Args:
        path: where the data lies.
        file_system: its kind and source, as in /proc/self/mountinfo.
    """
    found = []
    if place.quota_bytes is not None or place.quota_files is not None:
        found.append(Quota("profile", limit_bytes=place.quota_bytes, limit_files=place.quota_files))
    asked = _asked(path, *file_system)
    if asked is not None:
        found.append(asked)
    return tuple(found)


def read_quota(text: str, source: str, tool: str) -> Quota | None:
    """Return what `quota -w -p` or `lfs quota -q` printed of one file system; None: nothing of it.

    The columns are blocks of 1024 bytes used, soft and hard limit, grace, and the same for files; `*` marks what is over.
    A limit of 0 is none, and the soft one counts where there is no hard one.
    """
    words = text.split()
    for begin, word in enumerate(words):
        if word != source:
            continue
        row = words[begin + 1 : begin + 9]
        if len(row) == 8 and all(_NUMBER.match(row[column]) for column in (0, 1, 2, 4, 5, 6)):
            numbers = [int(row[column].rstrip("*")) for column in (0, 1, 2, 4, 5, 6)]
            used, soft, hard, used_files, soft_files, hard_files = numbers
            limit, limit_files = hard or soft, hard_files or soft_files
            return Quota(
                tool,
                used_bytes=used * _BLOCK_BYTES,
                limit_bytes=limit * _BLOCK_BYTES if limit else None,
                used_files=used_files,
                limit_files=limit_files or None,
            )
    return None


def _asked(path: str, kind: str, source: str) -> Quota | None:
    user = pwd.getpwuid(os.geteuid()).pw_name if _has_name() else str(os.geteuid())
    if kind == "lustre" and shutil.which("lfs"):
        mount = path
        while not os.path.ismount(mount):
            mount = os.path.dirname(mount)
        return read_quota(_output(["lfs", "quota", "-q", "-u", user, mount]), mount, "lfs quota")
    if shutil.which("quota"):
        return read_quota(_output(["quota", "-w", "-p", "-u", user]), source, "quota")
    return None


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _output(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
