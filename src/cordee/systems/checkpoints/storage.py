"""What the storage that checkpoints lie on does to them: files that are removed with age, and how they are spread over servers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordee.core.findings import Finding
from cordee.core.units import format_duration, utc_text
from cordee.machine.mounts import mount_of, read_mounts
from cordee.systems.checkpoints.node.folder import newest_complete

SOON_S = 7 * 86400.0
_FEW_RANKS = 16


def removed_at(path: str, purge_s: float) -> float | None:
    """Return when the first file of a checkpoint is removed, if nobody writes or reads it; None: it cannot be looked at.

    Args:
        path: a file or a folder.
        purge_s: the age at which files are removed there.
    """
    try:
        names = [os.path.join(below, name) for below, _, names in os.walk(path) for name in names] or [path]
        return min(max(status.st_atime, status.st_mtime) for status in map(os.stat, names)) + purge_s
    except OSError:
        return None


def purge_text(name: str, path: str, purge_s: float, now: float | None = None) -> str:
    """Return what becomes of a checkpoint soon, empty where nothing does."""
    gone_at = removed_at(path, purge_s)
    now = time.time() if now is None else now
    if gone_at is None or gone_at - now > SOON_S:
        return ""
    age = format_duration(purge_s)
    if gone_at <= now:
        return f"{name} may be removed at any time: files that nobody has used for {age} are removed there"
    return (
        f"{name} will be removed from {utc_text(gone_at)[:10]} on: files that nobody uses for {age} are removed there"
    )


def purge_finding(policy: Mapping[str, Any]) -> Finding | None:
    """Return that the newest checkpoint will be removed within a week; None where none will.

    Args:
        policy: `checkpoint` of the plan's step.
    """
    purge_s, path = policy.get("purge_s"), policy.get("path")
    newest = newest_complete(path, policy["pattern"], thorough=False) if purge_s and path else None
    text = purge_text(newest.name, newest.path, float(purge_s or 0)) if newest is not None else ""
    what = "`cordee checkpoint publish` puts its weights elsewhere; reading it gives it more time"
    return Finding(text, "warn", "checkpoint-purge", given=path, next=what) if text else None


def striping_advice(path: Path, ranks: int) -> Finding | None:
    """Return how a checkpoint folder on Lustre should be spread over its servers; None elsewhere.

    Each rank writes a file of its own. Many of them use all servers with one stripe each; a few large ones need several, which a
    progressive layout gives to large files alone. Source: lfs-setstripe(1), `-E`.
    """
    mount = mount_of(str(path), read_mounts("/"))
    if mount is None or mount.kind != "lustre":
        return None
    if ranks >= _FEW_RANKS:
        how, why = (
            "-c 1 -S 4M",
            f"each of {ranks} ranks writes a file of its own: with one stripe each they use all servers",
        )
    else:
        how = "-E 256M -c 1 -E 4G -c 4 -E -1 -c 16 -S 4M"
        why = f"{ranks} ranks write few files: large ones are fast only over several servers"
    text = f"checkpoints go to Lustre ({mount.point}), where {why}"
    what = f"once, before the first save: lfs setstripe {how} {path}"
    return Finding(text, "info", "checkpoint-striping", given=str(path), next=what)
