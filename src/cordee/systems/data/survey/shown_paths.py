"""Paths and counts in words and commands: whatever bytes a path has, a terminal and a shell take it as it is."""

from __future__ import annotations

import os
import shlex


def quoted(path: str) -> str:
    """Return a path as one word of a shell."""
    if _plain(path):
        return shlex.quote(path)
    shown = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\x{byte:02x}" for byte in os.fsencode(path)
    )
    return f"$'{shown}'"


def shown(path: str) -> str:
    """Return a path as it is, or as a shell would take it where it holds what a terminal would act on."""
    return path if _plain(path) else quoted(path)


def counted(count: int, what: str) -> str:
    """Return how many there are of something: `1 file`, `2,000 files`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _plain(path: str) -> bool:
    return path.isprintable()  # surrogates, which stand for bytes that are no UTF-8, are not
