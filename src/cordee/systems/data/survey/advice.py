"""What to do with a data set: a pure function of what was found and of the places there are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from cordee.core.units import format_size
from cordee.machine.node_tiers import MEMORY_SHARE
from cordee.systems.data.node.stage.tier import MEMORY_BYTES
from cordee.systems.data.survey.forecast import packed_bytes, shards_of
from cordee.systems.data.survey.model import Survey
from cordee.systems.data.survey.places import ReadingNode, StoragePlace
from cordee.systems.data.survey.shown_paths import quoted

# What centres ask for: up to about 10 GB in memory, up to about 100 GB on the node's own disk, else the shared file
# system in large reads; and never so much memory that the training has none.
NODE_BYTES = 100_000_000_000
MANY_FILES = 1000
SMALL_BYTES = 8_000_000
VERY_MANY_FILES = 100_000
_MOSTLY = 0.5
_ARCHIVE_ENDINGS = (".gz", ".zst", ".xz", ".bz2", ".tgz", ".zip", ".tar")
# Files that hold many samples each.
RECORD_FORMATS = ("packed", "webdataset", "tar", "parquet", "arrow", "tfrecord", "hdf5", "megatron", "squashfs")

NOTHING = "nothing: read where it is"


@dataclass(frozen=True)
class ReadingAdvice:
    """Where to read a data set from, why, and what to do for it.

    `tier` is the place's name and `kind` memory, node or shared. `command` None: there is nothing to do, `action` says so.
    `pack` is whether the samples should be packed into few large files first.
    """

    tier: str
    kind: str
    path: str
    reason: str
    action: str
    command: str | None
    pack: bool

    def document(self) -> dict[str, Any]:
        return dict(vars(self))


def advise(survey: Survey, machine: ReadingNode) -> ReadingAdvice:
    """Return where a node of this machine should read the data from, and the command that prepares it."""
    small = many_small_files(survey)
    size = packed_bytes(survey.files, survey.named_bytes) if small else survey.named_bytes
    place, reason = _place_for(size, machine)
    if not survey.files:
        reason = ""
    first, command = _command(survey, machine, size, small)
    partial = "" if survey.complete else "not all of it could be looked at, so it may be more"
    return ReadingAdvice(
        tier=place.name,
        kind=place.kind,
        path=place.path,
        reason=". ".join(part[:1].upper() + part[1:] for part in (first, reason, partial) if part),
        action=command or NOTHING,
        command=command,
        pack=small,
    )


def many_small_files(survey: Survey) -> bool:
    """Return whether an epoch opens so many files for so few bytes that they should be packed."""
    if survey.share("python environment", *RECORD_FORMATS) > _MOSTLY:
        return False
    return _many_files(survey)


def _many_files(survey: Survey) -> bool:
    return survey.files >= MANY_FILES and (survey.mean_bytes < SMALL_BYTES or survey.files >= VERY_MANY_FILES)


def _place_for(size: int, machine: ReadingNode) -> tuple[StoragePlace, str]:
    """Return the nearest place that takes so many bytes, and why it and none nearer."""
    passed: list[str] = []
    for kind in ("memory", "node"):
        for place in sorted(
            (each for each in machine.places if each.kind == kind), key=lambda each: -(each.room_bytes or 0)
        ):
            hindrance = _hindrance(size, place, machine)
            if hindrance is None:
                return place, "; ".join([_fits(size, place, machine), *passed])
            passed.append(f"not {_called(place)}, as {hindrance}")
    shared = [place for place in machine.places if place.kind == "shared"]
    place = next((each for each in shared if each.holds_data), shared[0] if shared else machine.data_place)
    where = f"{format_size(size)} are read from {_called(place)} in large pieces"
    return place, "; ".join([where, *passed])


def _hindrance(size: int, place: StoragePlace, machine: ReadingNode) -> str | None:
    """Return why a place cannot take so many bytes; None: it can."""
    limit = MEMORY_BYTES if place.kind == "memory" else NODE_BYTES
    if size > limit:
        return f"{format_size(size)} is over the {format_size(limit)} that centres put there"
    if place.kind == "memory":
        if machine.memory_bytes is None:
            return "the memory of a node is not known"
        if size > MEMORY_SHARE * machine.memory_bytes:
            return f"{format_size(size)} is over half of a node's {format_size(machine.memory_bytes)} of memory"
    if place.holds_data:
        return "the nodes of the cluster do not see this machine's own disk" if machine.elsewhere else None
    if place.room_bytes is None:
        return None if place.kind == "memory" else "its size is not known"
    if size > place.room_bytes:
        return f"only {format_size(place.room_bytes)} are free there"
    return None


def _fits(size: int, place: StoragePlace, machine: ReadingNode) -> str:
    if place.kind == "memory" and machine.memory_bytes:
        return f"{format_size(size)} fit into the memory of a node, which has {format_size(machine.memory_bytes)}"
    if place.holds_data:
        return f"{format_size(size)} lie on {_called(place)} already"
    return f"{format_size(size)} fit onto {_called(place)}, where {format_size(place.room_bytes or 0)} are free"


def _called(place: StoragePlace) -> str:
    if place.kind == "memory":
        return "memory"
    kind = {"node": "the node's own disk", "shared": "the shared file system"}[place.kind]
    return f"{kind} ({place.path})"


def _command(survey: Survey, machine: ReadingNode, size: int, small: bool) -> tuple[str, str | None]:
    """Return what is to be said of the form in which the data is, and the command that makes it better, if any."""
    path = quoted(survey.path)
    pack = f"cordee data pack {path} --to {quoted(_target(survey, machine, size))}"
    if survey.links_out > survey.files:
        return "most of it are links that lead elsewhere, and what they point at is not counted", f"{pack} --follow"
    if not survey.files:
        return "there are no files" if survey.complete else "no files could be seen", None
    if survey.share("python environment") > _MOSTLY:
        place = next(each.examples[0] for each in survey.formats if each.name == "python environment")
        return (
            f"this is a Python environment of {survey.files:,} files; one image of it is opened once",
            f"cordee env pack {quoted(place)}",
        )
    if survey.share("packed") > _MOSTLY:
        return "the data is packed already, with its index", None
    if survey.share("webdataset") > _MOSTLY:
        return "WebDataset shards are read as they are, and in any order once they have an index", (
            f"cordee data pack --index-only {path}"
        )
    badly = next((chunks for chunks in survey.chunks if not chunks.fits), None)
    if survey.share("zarr") > _MOSTLY:
        store = _zarr_store(survey)
        again = f"cordee data pack {quoted(store)} --to {quoted(store.removesuffix('.zarr') + '-packed')}"
        if small:
            return f"{survey.files:,} chunk files are opened every epoch; in shards they are few", again
        if badly is not None:
            return f"the chunks of {badly.array} fit badly: {badly.reason}", again
        return "the chunks of the Zarr store are files of their own, and large enough", None
    if badly is not None and survey.share("hdf5") > _MOSTLY:
        better = os.path.splitext(badly.path)[0] + "-packed"
        return f"the chunks of {badly.array} fit badly: {badly.reason}", (
            f"cordee data pack {quoted(badly.path)} --to {quoted(better)}"
        )
    if small:
        shards = shards_of(size)
        return f"{survey.files:,} files are opened every epoch; packed they are {shards}", pack
    if survey.share("compressed", "zip") > _MOSTLY:
        return "a compressed archive cannot be read in any order; its files can, packed", pack
    if survey.share("tar") > _MOSTLY:
        return "a tar without an index is read only from its beginning to its end", pack
    if _many_files(survey):
        each = f"{survey.files:,} files of {format_size(survey.mean_bytes)} each"
        return f"{each} hold records, but are many: whoever writes them should write files of 100 MB and more", None
    return "its files are few or large, and right as they are", None


def _zarr_store(survey: Survey) -> str:
    """Return the store that is meant: the path itself, or the topmost below it."""
    examples = next(each.examples for each in survey.formats if each.name == "zarr")
    return examples[0] if examples and "://" not in survey.path else survey.path


def _target(survey: Survey, machine: ReadingNode, size: int) -> str:
    """Return where a packed copy goes: beside the data, or to a shared place of the profile that has room for it.

    Where nothing is known to be writable with room, it is beside the data, and packing says what is wrong.
    """
    beside = _beside(survey)
    place = machine.data_place
    near = place.kind == "shared" or not any(each.kind == "shared" for each in machine.places)
    if near and machine.beside_writable and _has_room(place, size):
        return beside
    for each in machine.places:
        if each.kind == "shared" and each.declared and each.own_path and _has_room(each, size):
            return os.path.join(each.own_path, os.path.basename(beside))
    return beside


def _beside(survey: Survey) -> str:
    path = survey.path.rstrip("/")
    if survey.folders == 0:
        for ending in _ARCHIVE_ENDINGS:
            path = path.removesuffix(ending)
    return f"{path}-packed"


def _has_room(place: StoragePlace, size: int) -> bool:
    return place.free_bytes is None or place.free_bytes > size
