"""Where on this node a data set goes: its memory or its own disk, by size and room, and why."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable, NamedTuple, Optional

from cordee.core.units import format_size
from cordee.machine.memory import MemorySource
from cordee.machine.mounts import mount_of, read_mounts
from cordee.machine.node_folder import memory_places
from cordee.machine.private import may_hold_private
from cordee.systems.data.node.stage.claims import free_bytes
from cordee.systems.data.node.stage.kinds import kind_of_file_system

# What centres ask for: up to about 10 GB in memory, and never so much that the training has none.
MEMORY_BYTES = 10_000_000_000
MEMORY_SHARE = 0.5
_DISK_SHARE = 0.95


class Tier(NamedTuple):
    """A place of this node: its folder, and how many bytes may be put there, of which `removable` lie there unused now."""

    kind: str
    folder: Path
    room_bytes: int


class StagingDecision(NamedTuple):
    """Where it goes, None: it is read in place; and why."""

    tier: Optional[Tier]
    reason: str


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


def decide(to: str, size: int, there: list[Tier], removable: dict[Path, int]) -> StagingDecision:
    """Return where so many bytes go.

    Args:
        to: what was asked for; `auto` may also be nowhere.
        there: the tiers of this node.
        removable: bytes by a tier's folder that nobody uses and that would go for it.
    """
    passed = []
    for tier in there:
        if to not in ("auto", tier.kind):
            continue
        called = "memory" if tier.kind == "memory" else f"the node's disk ({tier.folder})"
        room = tier.room_bytes + removable.get(tier.folder, 0)
        if to == "auto" and tier.kind == "memory" and size > MEMORY_BYTES:
            passed.append(
                f"not {called}, as {format_size(size)} is over the {format_size(MEMORY_BYTES)} that centres put there"
            )
        elif size > room:
            passed.append(
                f"not {called}, as {format_size(size)} do not fit: {format_size(max(0, room))} may be used there"
            )
        else:
            fits = f"{format_size(size)} fit into {called}, where {format_size(room)} may be used"
            return StagingDecision(tier, "; ".join([fits, *passed]))
    if not passed:
        passed.append("this node has no such place" if to != "auto" else "this node has no place of its own")
    return StagingDecision(None, "; ".join(passed))
