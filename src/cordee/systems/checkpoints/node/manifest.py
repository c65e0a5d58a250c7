"""What makes a folder of files a complete checkpoint: its manifest, and then its name."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import NamedTuple

from cordee.systems.checkpoints.node.folder import MANIFEST, SCHEMA
from cordee.systems.checkpoints.node.sums import WORDS, crc32_of
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace


class Completion(NamedTuple):
    """What a manifest says beside the files, and what becomes of older checkpoints.

    Attributes:
        name: of the checkpoint, `step-<N>`.
        torch: the version that wrote it.
        keep: so many of this run's checkpoints stay.
        milestones: the first checkpoint of every so many steps stays for ever; 0: none does.
    """

    name: str
    step: int
    world_size: int
    torch: str
    keep: int
    milestones: int = 0


def complete(partial: str, what: Completion, sums: dict[str, int], place: CheckpointPlace, *, durable: bool) -> str:
    """Describe what lies in `partial`, make it durable, give it its name and remove what is too old; returns its path.

    Args:
        sums: CRC-32 of its files; those that are missing are made.
        durable: whether the files are already.
    """
    files = {}
    words = [name for name in os.listdir(partial) if name.startswith(WORDS)]
    for file_name in sorted(
        {*os.listdir(partial)} - {*words, MANIFEST}
    ):  # a writer that was killed may have got this far
        path = os.path.join(partial, file_name)
        files[file_name] = os.stat(path).st_size
        if file_name not in sums:
            sums[file_name] = crc32_of(path)
        if not durable:
            make_durable(path)
    manifest = {
        "schema": SCHEMA,
        "step": what.step,
        "world_size": what.world_size,
        "files": files,
        "crc32": {file_name: sums[file_name] for file_name in files},
        **place.maker(),
        "torch": what.torch,
        "time": time.time(),
    }
    with open(os.path.join(partial, MANIFEST), "w", encoding="utf-8") as file:
        json.dump(manifest, file)
        file.flush()
        os.fsync(file.fileno())
    for word in words:
        os.unlink(os.path.join(partial, word))
    make_durable(partial)
    target = place.renamed(partial, what.name)
    make_durable(os.path.dirname(target))
    shutil.rmtree(f"{partial}.old", ignore_errors=True)
    place.saved.add(target)
    place.remove_old(what.keep, what.milestones)
    return target


def make_durable(path: str) -> None:
    """Have a file or folder on the disk before this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
