"""The documents of a sample: its text field, its files, or the lines of JSON in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cordee.machine.foreign_files import parse_json, regular
from cordee.systems.data.node.shards.entries import PackedEntry, Sample
from cordee.systems.data.pack._base import CHUNK_BYTES, Unreadable

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

LARGEST_BYTES = 1 << 30
_LINES = (b".jsonl", b".ndjson")


def documents(plan: PackPlan, sample: Sample, text: str) -> Iterator[bytes]:
    """Yield the text of each document of a sample, as UTF-8.

    A sample with a field of the name `text` (a Parquet row, a line of a table) is that document; else every file is one, and
    every line of a file of JSON lines the one under that key.

    Raises:
        Unreadable: a file cannot be read, is no UTF-8 or no JSON, or a document is larger than 1 GiB.
    """
    named = [
        entry for field, entry in zip(sample.fields, sample.entries, strict=True) if field in (text, f"{text}.txt")
    ]
    for entry in named or sample.entries:
        if entry.name.lower().endswith(_LINES):
            yield from _of_lines(plan, entry, text)
        else:
            yield _whole(plan, entry)


def _whole(plan: PackPlan, entry: PackedEntry) -> bytes:
    if entry.length > LARGEST_BYTES:
        raise Unreadable(entry, "a document of more than 1 GiB; cut it, or make lines of JSON of it")
    data = b"".join(_chunks(plan, entry))
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(entry, f"no text in UTF-8 (byte {error.start})") from None
    return data


def _of_lines(plan: PackPlan, entry: PackedEntry, key: str) -> Iterator[bytes]:
    for number, line in enumerate(_lines(plan, entry), start=1):
        if not line.strip():
            continue
        try:
            text = parse_json(line)[key]
            yield text.encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unreadable(
                entry, f"line {number} is no JSON object with a text in `{key}`; --text names another key"
            ) from None


def _lines(plan: PackPlan, entry: PackedEntry) -> Iterator[bytes]:
    rest = b""
    for chunk in _chunks(plan, entry):
        first, *others = (rest + chunk).split(b"\n")
        if not others:
            rest = first
            if len(rest) > LARGEST_BYTES:
                raise Unreadable(entry, "a line of more than 1 GiB")
            continue
        yield first
        yield from others[:-1]
        rest = others[-1]
    if rest:
        yield rest


def _chunks(plan: PackPlan, entry: PackedEntry) -> Iterator[bytes]:
    """Yield an entry's bytes; a local file must still be what was listed when its last byte is read."""
    path = plan.path_of(entry)
    if path is None:
        yield from plan.origin.chunks(entry)
        return
    try:
        with open(path, "rb", opener=regular) as file:
            file.seek(entry.offset)
            left = entry.length
            while left:
                chunk = file.read(min(left, CHUNK_BYTES))
                if not chunk:
                    raise Unreadable(entry, "it became shorter while it was packed")
                left -= len(chunk)
                yield chunk
            if entry.stamp_ns >= 0 and os.fstat(file.fileno()).st_mtime_ns != entry.stamp_ns:
                raise Unreadable(entry, "it changed while it was packed")
    except OSError as error:
        raise Unreadable(entry, error.strerror or str(error)) from None
