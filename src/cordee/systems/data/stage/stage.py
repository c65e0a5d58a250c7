"""Staging one data set on this node."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordee.core.errors import DataError
from cordee.job.profile import ClusterProfile
from cordee.systems.data.node.shards.index import INDEX_NAME
from cordee.systems.data.stage.claims import StagedSets, bytes_below
from cordee.systems.data.stage.source import StagingSource, source_of, unpack
from cordee.systems.data.stage.tier import Tier, To, decide, tiers
from cordee.systems.data.stores import Stored, is_remote

_PIECE_BYTES = 16 << 20
_WORKERS = 4


@dataclass(frozen=True)
class Staged:
    """A data set where a node reads it.

    Attributes:
        tier: memory, node, or shared: it is read in place.
        path: of the data.
        bytes: that lie there.
        source_bytes: that were read from the source now; 0: it was there already.
        reason: why there.
        removed: how many unused sets went for it.
    """

    tier: str
    path: str
    bytes: int
    source_bytes: int
    seconds: float
    reason: str
    removed: int = 0

    def document(self) -> dict[str, Any]:
        return dict(vars(self))


def stage(
    address: str,
    profile: ClusterProfile,
    *,
    to: To = "auto",
    claim: int,
    unpacked: bool = True,
    prepare: str = "",
    tell: Callable[[int, int], None] = lambda _objects, _bytes: None,
) -> Staged:
    """Bring a data set to this node, unless it is there, and keep it for as long as a process lives.

    Args:
        address: a path, or an address of a store.
        to: `auto` reads in place what fits nowhere.
        claim: pid of the process that uses it.
        unpacked: whether one archive is unpacked.
        prepare: a command that is run once in the folder that holds it, before anyone sees it.
        tell: told (objects, bytes) that are copied so far.

    Raises:
        DataError: it cannot be read, does not fit, changed meanwhile, or `prepare` failed. Nothing is left of it then.
    """
    began = time.monotonic()
    source = source_of(address, unpack=unpacked)
    key = source.key(prepare)
    there = tiers(profile)
    for tier in there:
        if to in ("auto", tier.kind):
            sets = StagedSets(tier.folder)
            if (sets.folder(key) / source.name).exists():
                with sets.locked(key):
                    if (sets.folder(key) / source.name).exists():
                        sets.claim(key, claim)
                        path = sets.folder(key) / source.name
                        return Staged(
                            tier.kind, str(path), bytes_below(path), 0, time.monotonic() - began, "it is there already"
                        )
    size = source.staged_bytes
    removable = {tier.folder: StagedSets(tier.folder).unused_bytes() for tier in there}
    chosen, reason = decide(to, size, there, removable)
    if chosen is None:
        if to != "auto" or is_remote(address):
            raise DataError(f"it cannot be staged: {reason}", given=address, next="make room, or stage less of it")
        return Staged("shared", os.path.realpath(address), source.bytes, 0, 0.0, f"{reason}: it is read in place")
    return _staged(source, key, chosen, reason, size, claim, prepare, began, tell)


def _staged(
    source: StagingSource,
    key: str,
    tier: Tier,
    reason: str,
    size: int,
    claim: int,
    prepare: str,
    began: float,
    tell: Callable[[int, int], None],
) -> Staged:
    sets = StagedSets(tier.folder)
    with sets.locked(key):
        path = sets.folder(key) / source.name
        read = 0
        removed: list[str] = []
        if not path.exists():  # nobody else has staged it while this one waited
            removed = sets.make_room(size, key)
            partial = sets.partial(key)
            try:
                _copy(source, partial, prepare, tell)
                os.rename(partial, sets.folder(key))
            except OSError as error:
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                text = f"{tier.folder} is full" if full else f"{tier.folder} cannot be written: {error.strerror}"
                raise DataError(text, given=source.address, next="make room there, or stage it elsewhere") from error
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            read = source.bytes
        sets.claim(key, claim)
    return Staged(tier.kind, str(path), bytes_below(path), read, time.monotonic() - began, reason, len(removed))


def _copy(source: StagingSource, partial: Path, prepare: str, tell: Callable[[int, int], None]) -> None:
    """Put a data set together in a folder of its own, and see that it is what it was when it was listed."""
    target = partial / source.name
    below = target if source.is_folder and not source.archive else partial
    below.mkdir(exist_ok=True)
    done = [0, 0]

    def copy(one: Stored) -> None:
        path = below / one.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, one.bytes, _PIECE_BYTES):
                file.write(source.store.read(one.name, start, min(_PIECE_BYTES, one.bytes - start), one.version))
        done[0], done[1] = done[0] + 1, done[1] + one.bytes
        tell(done[0], done[1])

    if source.archive and not is_remote(source.address):
        unpack(source.store.path(source.objects[0].name), str(_fresh(target)))
    else:
        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(copy, source.objects))
        if source.archive:
            packed = below / source.objects[0].name
            unpack(str(packed), str(_fresh(target)))
            packed.unlink()
    again = source_of(source.address, unpack=source.archive)
    if again.objects != source.objects:
        raise DataError(
            "it changed while it was staged", given=source.address, next="stage it again when nobody writes it"
        )
    if (target / INDEX_NAME).exists():
        from cordee.systems.data.pack.verify import verify

        damaged = verify(str(target), quick=True, workers=1).damaged
        if damaged:
            raise DataError(
                f"it is damaged: {damaged[0].reason}", given=source.address, next="`cordee data verify` says where"
            )
    if prepare:
        ended = subprocess.run(shlex.split(prepare), cwd=target if target.is_dir() else partial, check=False)
        if ended.returncode:
            text = f"the command that prepares it ended with code {ended.returncode}"
            raise DataError(text, given=prepare, next="correct the command")


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder
