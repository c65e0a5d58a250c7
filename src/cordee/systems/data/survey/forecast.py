"""How many metadata operations and how much time one epoch costs in each place: a pure function of counts and rates."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cordee.systems.data.survey.places import ReadingNode, StoragePlace

SHARD_BYTES = 512_000_000
# open, fstat and close: what a reader of one file asks the metadata server for.
OPERATIONS_PER_FILE = 3
TAR_BYTES_PER_FILE = 1024  # header and filling up, on the mean


@dataclass(frozen=True)
class Epoch:
    """One pass over all data by one node: files opened, metadata operations, and seconds at a good and at a bad moment."""

    opens: int
    metadata_operations: int
    seconds: tuple[float, float]


@dataclass(frozen=True)
class TierForecast:
    """An epoch in one place, as the data is and packed into shards; the bases say where the two rates are from."""

    tier: str
    kind: str
    path: str
    opens_basis: str
    read_basis: str
    as_it_is: Epoch
    packed: Epoch

    def document(self) -> dict[str, Any]:
        return asdict(self)


def shards_of(size_bytes: int) -> int:
    """Return into how many shards so many bytes are packed."""
    return max(1, -(-size_bytes // SHARD_BYTES))


def packed_bytes(files: int, size_bytes: int) -> int:
    """Return about how many bytes shards of these files have."""
    return size_bytes + files * TAR_BYTES_PER_FILE


def forecast(files: int, size_bytes: int, machine: ReadingNode) -> tuple[TierForecast, ...]:
    """Return the forecast of every place of a machine.

    Args:
        files: that an epoch opens, each once.
        size_bytes: that it reads.
    """
    packed = packed_bytes(files, size_bytes)
    return tuple(
        TierForecast(
            tier=place.name,
            kind=place.kind,
            path=place.path,
            opens_basis=place.opens.basis,
            read_basis=place.read.basis,
            as_it_is=_epoch(files, size_bytes, place),
            packed=_epoch(shards_of(packed) + 1, packed, place),
        )
        for place in machine.places
    )


def _epoch(opens: int, size_bytes: int, place: StoragePlace) -> Epoch:
    return Epoch(
        opens=opens,
        metadata_operations=OPERATIONS_PER_FILE * opens,
        seconds=(
            opens / place.opens.high + size_bytes / place.read.high,
            opens / place.opens.low + size_bytes / place.read.low,
        ),
    )
