"""Names of recordings, and of the places where their processes meet."""

from __future__ import annotations

import os
import re
import zlib
from typing import Iterator, Sequence

from cordee.runs.folder import new_run_id
from cordee.telemetry.node.record.recorded_process import RecordedProcess

MOST_RECORDINGS = 10_000


def digest(text: str) -> str:
    """Return 16 letters that other texts hardly share; quick to import, and no defence against anybody."""
    data = text.encode(errors="surrogateescape")
    return f"{zlib.crc32(data):08x}{zlib.crc32(data[::-1]):08x}"


def default_names(place: RecordedProcess, argv: Sequence[str]) -> Iterator[str]:
    """Yield names for a recording, best first: the same on all nodes for processes that were started together."""
    name = command_name(argv)
    if not place.launcher:
        for _ in range(MOST_RECORDINGS):
            yield new_run_id(name)
    first = f"{place.job}.{place.step}" if place.step else f"{name}-{digest(place.key)[:8]}"
    yield first
    for number in range(2, MOST_RECORDINGS):
        yield f"{first}-{number}"


def command_name(argv: Sequence[str]) -> str:
    """Return what people would call a command: `train` for `python -u train.py --lr 1`."""
    words = list(argv)
    name = os.path.basename(words[0])
    if name.startswith(("python", "torchrun", "bash", "sh")):
        scripts = (re.fullmatch(r"(?:.*/)?([\w.+-]+)\.\w+", word) for word in words[1:] if not word.startswith("-"))
        name = next((script.group(1) for script in scripts if script), name)
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:40] or "command"
