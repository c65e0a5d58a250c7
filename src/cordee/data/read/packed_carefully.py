"""Reading sample by sample what could not be read in one go: once more, and with an error that names the sample."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Any, Optional

from cordee.data.read.packed_layout import Layout, assembled
from cordee.errors import CorruptDataError, DataError

if TYPE_CHECKING:
    from cordee.data.read.packed import Array, PackedSource


def read_carefully(source: "PackedSource", layout: Layout, samples: "Array") -> list[Any]:
    """Return samples as `read` does, each read by itself; a file that was replaced on its server is opened anew once.

    Raises:
        CorruptDataError: a shard ends within a sample (unless those are skipped), or is another one.
        DataError: storage failed.
    """
    found: list[Any] = []
    for place, number in enumerate(samples.tolist()):
        try:
            found.append(_sample(source, layout, samples[place : place + 1]))
        except OSError as error:
            raise _failed(source, number, error) from error
        if found[-1] is not None:
            continue
        if source.corrupt == "raise":
            raise CorruptDataError(
                "a shard ends within a sample",
                given=source.describe(number),
                next="copy the shard again; `cordee data verify` names all that is damaged",
            )
        source.skip(number)
    return found


def _sample(source: "PackedSource", layout: Layout, samples: "Array") -> Optional[dict[str, Any]]:
    """Return one sample; None when its shard ends before it does."""
    block = layout.block(samples)
    pieces = layout.pieces(block)
    shard = int(block.shards[0])
    parts = []
    for begin, end in zip(pieces.begins.tolist(), pieces.ends.tolist()):
        started = time.perf_counter()
        data = _stretch(source, shard, begin, end - begin)
        source.counts.request(end - begin, time.perf_counter() - started)
        if len(data) != end - begin:
            return None
        parts.append(data)
    return assembled(layout.fields, block, 0, parts)


def _stretch(source: "PackedSource", shard: int, begin: int, length: int) -> bytes:
    try:
        return source.files.read(shard, begin, length)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
    source.files.reopen(shard)
    return source.files.read(shard, begin, length)


def _failed(source: "PackedSource", sample: int, error: OSError) -> DataError:
    name: Optional[str] = errno.errorcode.get(error.errno or 0)
    return DataError(
        f"storage failed while a sample was read: {error.strerror or error} ({name})",
        given=source.describe(sample),
        next="look at the file system (`dmesg`, its status page); the job continues from its last checkpoint when it is back",
    )
