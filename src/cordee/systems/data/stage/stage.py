"""Staging one data set on this node, alone."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cordee.core.errors import DataError
from cordee.job.profile import ClusterProfile
from cordee.machine.node_tiers import tiers
from cordee.systems.data.node.shards.index import INDEX_NAME
from cordee.systems.data.node.stage import copy
from cordee.systems.data.node.stage.blocks import BlockFolder
from cordee.systems.data.node.stage.claims import StagedSets, bytes_below
from cordee.systems.data.node.stage.fan_out import FanOut
from cordee.systems.data.node.stage.source import source_of
from cordee.systems.data.node.stage.tier import decide
from cordee.wire.stores import is_remote

To = Literal["auto", "memory", "node"]


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
    there = tiers(profile.node_places)
    for tier in there:
        here = copy.found(source, key, tier, claim) if to in ("auto", tier.kind) else None
        if here is not None:
            passed_s, reason = time.monotonic() - began, "it is there already"
            return Staged(tier.kind, str(here.path), bytes_below(here.path), 0, passed_s, reason)
    copied = not source.archive or is_remote(address)
    removable = {tier.folder: StagedSets(tier.folder).unused_bytes() for tier in there}
    chosen, reason = decide(to, source.staged_bytes(copied), there, removable)
    if chosen is None:
        if to != "auto" or is_remote(address):
            raise DataError(f"it cannot be staged: {reason}", given=address, next="make room, or stage less of it")
        return Staged("shared", os.path.realpath(address), source.bytes, 0, 0.0, f"{reason}: it is read in place")

    def fill(blocks: BlockFolder) -> None:
        FanOut(source.name, source.store, blocks, tell=lambda count: tell(0, count)).run()

    put = copy.put(
        source, key, chosen, claim, fill if copied else None, lambda target: _finish(target, prepare, address)
    )
    size = bytes_below(put.path)
    copy.served_no_more(source, put)
    read = source.bytes if put.new else 0
    return Staged(chosen.kind, str(put.path), size, read, time.monotonic() - began, reason, put.removed)


def _finish(target: Path, prepare: str, address: str) -> None:
    """Look at a packed set with its index, and do what is to be done once."""
    if (target / INDEX_NAME).exists():
        from cordee.systems.data.pack.verify import verify

        damaged = verify(str(target), quick=True, workers=1).damaged
        if damaged:
            raise DataError(
                f"it is damaged: {damaged[0].reason}", given=address, next="`cordee data verify` says where"
            )
    copy.prepare(shlex.split(prepare), target)
