"""The places where data can lie: the tiers of the profile, and what is known, measured or assumed of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from cordee.job.profile import ClusterProfile, StorageTier
from cordee.machine.limited import answers_within
from cordee.machine.mounts import Mount, kind_of_file_system, mount_of, read_mounts
from cordee.systems.data.survey.speed import measure

Kind = Literal["memory", "node", "shared"]
PROFILE, MEASURED, ASSUMED = "profile", "measured", "assumed"
# One node, from a busy day to a quiet one; used, and said to be, only where nothing was declared or measured.
ASSUMED_OPENS_PER_S = {"memory": (15e3, 100e3), "node": (3e3, 30e3), "shared": (300.0, 3e3)}
ASSUMED_BYTES_PER_S = {"memory": (3e9, 15e9), "node": (1e9, 5e9), "shared": (0.3e9, 3e9)}
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Rate:
    """A rate from a bad to a good moment, per second and node; `basis` is profile, measured or assumed."""

    low: float
    high: float
    basis: str


@dataclass(frozen=True)
class StoragePlace:
    """A place for data. What is not known is None; `holds_data` marks the one in which the surveyed data lies.

    `own_path` is the folder there in which this person may write.
    """

    name: str
    kind: Kind
    path: str
    opens: Rate
    read: Rate
    size_bytes: int | None = None
    free_bytes: int | None = None
    free_files: int | None = None
    quota_bytes: int | None = None
    quota_files: int | None = None
    purge_s: float | None = None
    own_path: str | None = None
    declared: bool = False
    holds_data: bool = False

    @property
    def room_bytes(self) -> int | None:
        """What can still be put there: what is free, else all that there is, else None."""
        return self.size_bytes if self.free_bytes is None else self.free_bytes


@dataclass(frozen=True)
class ReadingNode:
    """The node that shall train, and the places it can read from; `elsewhere`: it is not this machine.

    `beside_writable` is whether something may be put beside the data.
    """

    cluster: str
    memory_bytes: int | None
    places: tuple[StoragePlace, ...]
    elsewhere: bool = False
    beside_writable: bool = True

    @property
    def data_place(self) -> StoragePlace:
        return next(place for place in self.places if place.holds_data)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def machine_of(profile: ClusterProfile, path: str, samples: Sequence[str] = ()) -> ReadingNode:
    """Return what a node of the cluster is for data at `path`: memory and places, with what is free now.

    Args:
        path: absolute, or an address of a store.
        samples: files of the data set; a few are opened and read where the profile does not say how fast that is.
    """
    mounts = read_mounts("/")
    places = [_declared(name, tier) for name, tier in profile.storage.items()]
    elsewhere = bool(profile.nodes_elsewhere)
    if not elsewhere:
        places += _of_this_machine(places, path, mounts)
    holder = _holder([place for place in places if place.kind == "shared" or not elsewhere], path)
    if holder is None:
        holder = _undeclared(path, mounts)
        places.append(holder)
    free = _free([place.path for place in places if place.kind == "shared" or not elsewhere or place is holder])
    filled = [_with_free(place, free.get(place.path)) for place in places]
    if holder.opens.basis == ASSUMED and samples:
        opens, read = measure(samples)
        filled = [_with_measured(place, opens, read) if place.path == holder.path else place for place in filled]
    return ReadingNode(
        cluster=profile.name,
        memory_bytes=_node_memory(profile),
        elsewhere=elsewhere,
        beside_writable="://" in path or os.access(os.path.dirname(path), os.W_OK),
        places=tuple(replace(place, holds_data=place.path == holder.path) for place in filled),
    )


def fill_in(path: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder that a profile's path means: `~` and variables are filled in, as for `runs`."""
    return os.path.realpath(os.path.expandvars(os.path.expanduser(path)))


def _declared(name: str, tier: StorageTier) -> StoragePlace:
    kind: Kind = tier.kind
    opens = Rate(tier.opens_per_s, tier.opens_per_s, PROFILE) if tier.opens_per_s else _assumed_opens(kind)
    per_node = tier.node_bandwidth or (tier.bandwidth if kind != "shared" else None)
    read = Rate(per_node, per_node, PROFILE) if per_node else _assumed_read(kind)
    if not per_node and tier.bandwidth:
        read = Rate(min(read.low, tier.bandwidth), min(read.high, tier.bandwidth), ASSUMED)
    return StoragePlace(
        name=name,
        kind=kind,
        path=fill_in(tier.path),
        opens=opens,
        read=read,
        size_bytes=tier.size,
        quota_bytes=tier.quota,
        quota_files=tier.quota_files,
        purge_s=tier.purge,
        declared=True,
    )


def _of_this_machine(declared: list[StoragePlace], path: str, mounts: list[Mount]) -> list[StoragePlace]:
    """Return the memory and the disk of this machine, where the profile names none of their kind.

    The disk is that of the temporary folder, or as a whole where the data lies on the same.
    """
    found = []
    kinds = {place.kind for place in declared}
    if "memory" not in kinds and os.path.isdir("/dev/shm"):
        found.append(_plain_place("memory", "memory", "/dev/shm"))
    temporary = os.environ.get("TMPDIR") or "/tmp"
    mount = mount_of(temporary, mounts)
    if "node" not in kinds and mount is not None and kind_of_file_system(mount.kind) == "node":
        same = "://" not in path and mount_of(path, mounts) == mount
        found.append(_plain_place("node", "node", mount.point if same else temporary))
    return found


def _holder(places: list[StoragePlace], path: str) -> StoragePlace | None:
    """Return the place with the longest path above the data."""
    above = [place for place in places if (path + "/").startswith(place.path.rstrip("/") + "/")]
    return max(above, key=lambda place: len(place.path), default=None)


def _undeclared(path: str, mounts: list[Mount]) -> StoragePlace:
    if "://" in path:
        return _plain_place("store", "shared", path)
    mount = mount_of(path, mounts)
    kind = kind_of_file_system(mount.kind if mount else "")
    return _plain_place("here", kind, mount.point if mount else path)


def _plain_place(name: str, kind: Kind, path: str) -> StoragePlace:
    return StoragePlace(name=name, kind=kind, path=path, opens=_assumed_opens(kind), read=_assumed_read(kind))


def _assumed_opens(kind: Kind) -> Rate:
    return Rate(*ASSUMED_OPENS_PER_S[kind], ASSUMED)


def _assumed_read(kind: Kind) -> Rate:
    return Rate(*ASSUMED_BYTES_PER_S[kind], ASSUMED)


def _free(paths: list[str]) -> dict[str, list[Any]]:
    """Return [bytes, free bytes, files, free files, own path] of each path that answers in time."""
    answers = answers_within(_PATIENCE_S, {path: _question(path) for path in paths if "://" not in path})
    return {path: answer for path, answer in answers.items() if isinstance(answer, list)}


def _question(path: str) -> Callable[[], list[Any]]:
    def ask() -> list[Any]:
        status = os.statvfs(path)
        size, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
        folders = (path, os.path.join(path, os.environ.get("USER", "")))
        own = next((folder for folder in folders if os.path.isdir(folder) and os.access(folder, os.W_OK)), None)
        return [size, free, status.f_files, status.f_favail, own]

    return ask


def _with_free(place: StoragePlace, answer: list[Any] | None) -> StoragePlace:
    if answer is None:
        return place
    size, free, files, free_files, own_path = answer
    return replace(
        place,
        size_bytes=size if place.size_bytes is None else place.size_bytes,
        free_bytes=free if size else None,
        free_files=free_files if files else None,
        own_path=own_path,
    )


def _with_measured(place: StoragePlace, opens: float | None, read: float | None) -> StoragePlace:
    """Return a place with what was measured in the place of what was assumed."""
    if opens and place.opens.basis == ASSUMED:
        place = replace(place, opens=Rate(opens, opens, MEASURED))
    if read and place.read.basis == ASSUMED:
        place = replace(place, read=Rate(read, read, MEASURED))
    return place


def _node_memory(profile: ClusterProfile) -> int | None:
    """Return the memory of the smallest node that the profile knows, the default partition's first."""
    if profile.memory:
        return profile.memory
    ranked = sorted(profile.partitions.values(), key=lambda partition: not partition.default)
    sizes = [shape.memory for partition in ranked[:1] for shape in partition.shapes if shape.memory]
    return min(sizes, default=None)
