"""Whether compute nodes can see the folders of a run: the most common fault of a first run on a cluster."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cordee.core.backends import abilities
from cordee.core.findings import Finding
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan.model import Plan

# Kinds of file systems that no other machine sees, unless this machine exports them.
_LOCAL_KINDS = frozenset(
    ["btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs", "vfat", "xfs", "zfs"]
)
_RUNS = "give the folder of runs with --runs DIR, CORDEE_RUNS, or `runs` in the cluster's profile"
_JOB = "keep the job and its checkpoints where all nodes see them"
_OCTAL = re.compile(r"\\([0-7]{3})")
_MOUNTS = Path("/proc/self/mountinfo")
_EXPORTS = Path("/var/lib/nfs/etab")


def examine_storage(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Warn of folders that lie on this machine's own disks when the cluster has nodes on other machines."""
    saying = JobFindings(loaded)
    if not loaded.cluster.nodes_elsewhere or not abilities(loaded.cluster.scheduler).shares_files:
        return []
    folders = {"run folder": plan.folder, "job folder": plan.job_folder}
    if plan.step.checkpoint.declared:
        folders["checkpoint folder"] = plan.step.checkpoint.path
    own = {what: kind for what, folder in folders.items() if (kind := local_kind(Path(folder)))}
    if not own:
        return []
    many = len(own) > 1
    saying.warn(
        "name",
        "local-folder",
        f"{_and([f'the {what}' for what in own])} {'lie' if many else 'lies'} on this machine's own disk "
        f"({', '.join(dict.fromkeys(own.values()))}), and {plan.cluster} has nodes on other machines, which do not see it",
        given=", ".join(folders[what] for what in own),
        allowed="folders on a file system that all nodes share",
        next="; ".join(filter(None, (_RUNS if "run folder" in own else "", _JOB if set(own) - {"run folder"} else ""))),
    )
    return saying.findings


def local_kind(path: Path, mounts: Path = _MOUNTS, exports: Path = _EXPORTS) -> str | None:
    """Return the kind of file system under a path, which need not exist yet, if surely no other machine sees it.

    Args:
        mounts: as /proc/self/mountinfo.
        exports: as NFS writes down what this machine exports.
    """
    place = os.path.realpath(path)
    mounted = [(where, kind) for where, kind in _mounted(mounts) if _below(place, where)]
    if not mounted:
        return None
    kind = max(enumerate(mounted), key=lambda entry: (len(entry[1][0]), entry[0]))[1][1]
    exported = any(_below(place, line.split()[0]) for line in _text(exports).splitlines() if line.strip())
    return kind if kind in _LOCAL_KINDS and not exported else None


def _mounted(mounts: Path) -> list[tuple[str, str]]:
    found = []
    for line in _text(mounts).splitlines():
        before, _, after = line.partition(" - ")
        if len(before.split()) > 4 and after:
            where = _OCTAL.sub(lambda match: chr(int(match[1], 8)), before.split()[4])
            found.append((where, after.split()[0]))
    return found


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
