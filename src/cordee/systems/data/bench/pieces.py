"""Where the bytes of a data set's samples lie, so that a bare loop can read the same bytes as a loader."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cordee.core.errors import DataError
from cordee.systems.data.node.read.tokens.index import TokenIndex, find_token_set
from cordee.systems.data.node.read.tokens.store import open_token_index
from cordee.systems.data.node.shards.index import INDEX_NAME, ShardIndex, open_index

# More files than this are not listed: a sample of them says as much.
MOST_FILES = 200_000
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class SampleSpans:
    """One span of bytes for each sample.

    Attributes:
        kind: `packed` (samples in few files), `tokens` (pieces of one file), `files` (one file each) or `blocks` (a file
            whose samples are not known).
        identity: of the index where there is one, else of the path.
        files: paths.
        file, offset, span: of each sample, int64[N]: which file, where its bytes begin, and how many to its last one.
        payload: int64[N], the bytes that a loader hands out; less than `span` by what lies between two fields.
        whole: all samples are here, not the first `MOST_FILES`.
        per_sample: how many pieces a loader's sample is made of: more than one where files that belong together are one.
    """

    path: str
    kind: str
    identity: str
    files: Sequence[str]
    file: np.ndarray
    offset: np.ndarray
    span: np.ndarray
    payload: np.ndarray
    whole: bool = True
    per_sample: float = 1.0

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(self.file)

    @property
    def bytes(self) -> int:
        """All payload."""
        return int(self.payload.sum())


def find_pieces(path: str, fields: Sequence[str] = (), length: int = 0) -> SampleSpans:
    """Return the pieces of what lies at a path: a packed data set, a token set, a folder of files, or one large file.

    Args:
        fields: of a packed data set: only these; empty: all.
        length: of a token set: tokens of a sample; 0: its samples are not known.

    Raises:
        DataError: nothing is there, it cannot be read, or it is empty.
    """
    if os.path.exists(os.path.join(path, INDEX_NAME)) or path.endswith(".index"):
        return _checked(_packed(open_index(path), fields))
    if (tokens := find_token_set(path)) is not None:
        return _checked(_tokens(open_token_index(tokens), length))
    return _checked(_blocks(path) if os.path.isfile(path) else _folder(path))


def _checked(pieces: SampleSpans) -> SampleSpans:
    if not pieces.samples or not pieces.bytes:
        raise DataError("the data set is empty: there is nothing to measure", given=pieces.path)
    return pieces


def _packed(index: ShardIndex, fields: Sequence[str]) -> SampleSpans:
    unknown = [field for field in fields if field not in index.fields]
    if unknown:
        raise DataError("the data set has no such field", given=", ".join(unknown), allowed=list(index.fields))
    chosen = [at for at, field in enumerate(index.fields) if not fields or field in fields]
    length = index.columns["length"][:, chosen].astype(np.int64)
    offset = index.columns["offset"][:, chosen].astype(np.int64)
    there = length >= 0
    begin = np.where(there, offset, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    end = np.where(there, offset + length, 0).max(axis=1, initial=0)
    begin = np.minimum(begin, end)
    return SampleSpans(
        path=index.path,
        kind="packed",
        identity=index.id,
        files=[index.shard_path(shard) for shard in range(len(index.shards))],
        file=index.columns["shard"].astype(np.int64),
        offset=begin,
        span=end - begin,
        payload=np.where(there, length, 0).sum(axis=1),
    )


def _folder(path: str) -> SampleSpans:
    if not os.path.isdir(path):
        raise DataError(
            "there is no data set", given=path, allowed="a packed data set, a folder of files, or one large file"
        )
    files: list[str] = []
    sizes: list[int] = []
    whole = True
    for entry in _walk(path):
        if len(files) == MOST_FILES:
            whole = False
            break
        files.append(entry.path)
        sizes.append(entry.stat(follow_symlinks=False).st_size)
    span = np.array(sizes, np.int64)
    at = np.arange(len(files))
    return SampleSpans(path, "files", _identity(path), files, at, np.zeros(len(files), np.int64), span, span, whole)


def _walk(path: str) -> Iterator[os.DirEntry[str]]:
    """Give the files below a folder in the order of their names; links are not followed."""
    folders = [path]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            raise DataError(f"a folder cannot be read: {error.strerror}", given=folder) from None
        folders.extend(entry.path for entry in reversed(entries) if entry.is_dir(follow_symlinks=False))
        yield from (entry for entry in entries if entry.is_file(follow_symlinks=False))


def _tokens(index: TokenIndex, length: int) -> SampleSpans:
    if not length:
        return _blocks(index.bin_path)
    count = max(0, index.tokens - 1) // length
    offset = np.arange(count, dtype=np.int64) * length * index.item_bytes
    span = np.full(count, (length + 1) * index.item_bytes, np.int64)
    at = np.zeros(count, np.int64)
    return SampleSpans(index.path, "tokens", _identity(index.path), [index.bin_path], at, offset, span, span)


def _blocks(path: str) -> SampleSpans:
    size = Path(path).stat().st_size
    offset = np.arange(0, size, _BLOCK_BYTES, dtype=np.int64)
    span = np.minimum(_BLOCK_BYTES, size - offset)
    return SampleSpans(path, "blocks", _identity(path), [path], np.zeros(len(offset), np.int64), offset, span, span)


def _identity(path: str) -> str:
    """Return what names a data set that has no index: its place."""
    return os.path.abspath(path)
