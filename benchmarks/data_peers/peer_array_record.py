"""array_record: files of 10,000 records, groups of one for random access; batches of 256 of a global shuffle."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from array_record.python import array_record_data_source, array_record_module

_RECORDS = 10_000


def pack(files: list[tuple[str, int]], into: Path) -> None:
    """Write records without compression."""
    for first in range(0, len(files), _RECORDS):
        target = str(into / f"{first:08d}.array_record")
        writer = array_record_module.ArrayRecordWriter(target, "group_size:1,uncompressed")
        for path, label in files[first : first + _RECORDS]:
            with open(path, "rb") as file:
                writer.write(label.to_bytes(8, "little") + file.read())
        writer.close()


def opened(into: Path) -> Any:
    """Return the source of random access."""
    return array_record_data_source.ArrayRecordDataSource(sorted(str(path) for path in into.glob("*.array_record")))


def read(source: Any, seed: int) -> Iterator[bytes]:
    """Give the samples; 8 bytes of each are its label."""
    order = list(range(len(source)))
    random.Random(seed).shuffle(order)
    for first in range(0, len(order), 256):
        for record in source.__getitems__(order[first : first + 256]):
            yield record[8:]
