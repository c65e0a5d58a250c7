"""What came from a store against what the store says that it holds."""

from __future__ import annotations

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Collection, Iterable

from cordee.core.errors import CorruptDataError
from cordee.systems.data.node.stage.blocks import BlockFolder
from cordee.systems.data.node.stage.source import StagingSource
from cordee.wire.stores import ObjectStore, Stored

_PIECE_BYTES = 1 << 20
_MOST_THREADS = 8
# Where no object has the MD5 that its ETag would be, so many are read again to tell a broken way from ETags of another kind.
_PROBES = 2
# Where no object has it, so few are each asked for their encryption; of more, the first speaks for all: each is a request.
_ASKED = 16


def refuse_other_bytes(source: StagingSource, blocks: BlockFolder) -> None:
    """Read objects again that came otherwise than the store's MD5 of them says.

    Raises:
        CorruptDataError: they come otherwise again.
        DataError, OSError: they cannot be read, or written.
    """
    store, folder = source.store, blocks.folder
    told = [one for one in source.objects if one.bytes and store.agrees(one, b"") is not None]
    came = _sums(folder, told)
    wrong = [one for one in told if not store.agrees(one, came[one])]
    if not wrong:
        return
    all_wrong = len(wrong) == len(told)
    if not all_wrong or len(wrong) <= _ASKED:
        wrong = [one for one in wrong if not store.encrypts(one.name)]
    elif store.encrypts(wrong[0].name):
        return
    probes = _PROBES if all_wrong else len(wrong)
    _read_again(store, blocks, wrong[:probes])
    again = _sums(folder, wrong[:probes])
    if all_wrong and len(wrong) > 1 and all(again[one] == came[one] for one in again):
        print(f"cordee: ETags of {store.address} are no MD5 sums: what came was not compared", file=sys.stderr)
        return
    _read_again(store, blocks, wrong[probes:])
    again = _sums(folder, wrong)
    bad = [one for one in wrong if not store.agrees(one, again[one])]
    if bad:
        raise CorruptDataError(
            "what comes from the store is not what it says that it holds",
            given=f"{store.path(bad[0].name)}: MD5 {again[bad[0]].hex()} at the second try, its ETag is {bad[0].version}",
            allowed="objects whose bytes have the MD5 that their ETag says",
            next=f"upload {'it' if len(bad) == 1 else f'these {len(bad)} objects'} again, or ask those who run the store",
        )


def _sums(folder: Path, objects: Collection[Stored]) -> dict[Stored, bytes]:
    with ThreadPoolExecutor(min(_MOST_THREADS, len(os.sched_getaffinity(0)))) as pool:
        return dict(zip(objects, pool.map(lambda one: _md5(folder / one.name), objects)))


def _md5(path: Path) -> bytes:
    found = hashlib.md5(usedforsecurity=False)
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            found.update(piece)
    return found.digest()


def _read_again(store: ObjectStore, blocks: BlockFolder, objects: Iterable[Stored]) -> None:
    """Peers are given the blocks as they come now."""
    wanted = set(objects)
    for block in range(blocks.row.count if wanted else 0):
        parts = list(blocks.row.stretches(block))
        if any(part.object in wanted for part in parts):
            here, at, pieces = blocks.get(block)[0], 0, []
            for part in parts:
                name, version = part.object.name, part.object.version
                again = part.object in wanted
                # What lies beside it was compared already: read again too, it could come broken, and nobody would look.
                pieces.append(
                    store.read(name, part.start, part.length, version) if again else here[at : at + part.length]
                )
                at += part.length
            blocks.put(block, b"".join(pieces))
