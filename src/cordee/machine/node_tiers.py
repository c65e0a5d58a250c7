"""The places of this node that data and checkpoints may be put into: its memory and its own disks, with the room there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable, NamedTuple

from cordee.machine.memory import MemorySource
from cordee.machine.mounts import kind_of_file_system, mount_of, read_mounts
from cordee.machine.node_folder import memory_places
from cordee.machine.private import may_hold_private

# What is put into memory leaves the training the other half.
MEMORY_SHARE = 0.5
_DISK_SHARE = 0.95


class Tier(NamedTuple):
    """A place of this node: its folder, and how many bytes may be put there, of which `removable` lie there unused now."""

    kind: str
    folder: Path
    room_bytes: int


def tiers(node_tiers: Iterable[str]) -> list[Tier]:
    """Return the memory and the disks of this node, the best first, that this person may use.

    Disks are $SLURM_TMPDIR, the node tiers of the profile, $TMPDIR and /tmp; what is put into memory counts as the job's.

    Args:
        node_tiers: paths of the profile's storage of kind `node`, as they stand there.
    """
    found = []
    mounts = read_mounts("/")
    for folder in memory_places():
        mount = mount_of(str(folder), mounts)
        if mount is not None and kind_of_file_system(mount.kind) == "memory":
            reading = MemorySource().read()
            most = int(MEMORY_SHARE * reading.available_bytes) if reading is not None else 0
            found.append(Tier("memory", folder, min(free_bytes(folder), most)))
            break
    declared = [os.path.realpath(os.path.expandvars(os.path.expanduser(path))) for path in node_tiers]
    named = [os.environ.get("SLURM_TMPDIR"), *declared, os.environ.get("TMPDIR"), "/tmp"]
    for place in dict.fromkeys(filter(None, named)):
        mount = mount_of(place, mounts)
        on_disk = place in declared or (mount is not None and kind_of_file_system(mount.kind) == "node")
        if on_disk and os.path.isdir(place) and may_hold_private(Path(place)):
            found.append(Tier("node", Path(place), int(_DISK_SHARE * free_bytes(Path(place)))))
    return found


def free_bytes(folder: Path) -> int:
    """Return what can be written there."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
