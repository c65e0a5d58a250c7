"""The wire format of protocol buffers: fields by number, without a schema."""

from __future__ import annotations

from typing import Iterator, NamedTuple

from cordee.systems.scan.node.source import Source


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: of the field.
        value: of a number; 0 else.
        begin, size: where its bytes lie in the source, if it is a text or a message; size -1: it is a number.
    """

    number: int
    value: int
    begin: int
    size: int


def fields(source: Source) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        ValueError: it is none.
    """
    at = 0
    while at < source.size:
        key, at = _varint(source, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise ValueError("a field has the number 0")
        if kind == 0:
            value, at = _varint(source, at)
            yield Field(number, value, 0, -1)
        elif kind == 2:
            size, at = _varint(source, at)
            if at + size > source.size:
                raise ValueError("a field is cut off")
            yield Field(number, 0, at, size)
            at += size
        elif kind in (1, 5):
            yield Field(number, 0, at, -1)
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field has the type {kind}")


def text(source: Source, field: Field, limit: int = 4096) -> str:
    """Return a field's bytes as a text."""
    return source.at(field.begin, min(max(field.size, 0), limit)).decode("utf-8", "replace")


def _varint(source: Source, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in source.at(at, 10):
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is cut off")
