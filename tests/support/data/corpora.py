"""A corpus for examples under test: a part of the standard library as tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of


def pack_corpus(folder: Path) -> None:
    """Pack the source of asyncio, about half a megabyte, into a folder, as `examples/char-gpt` reads it."""
    plan = plan_of(str(Path(asyncio.__file__).parent), include=["*.py"])
    pack(plan, str(folder), PackOptions(durable=False), target="tokens")
