"""The file in which an agent says which of its ranks run, to the processes that measure beside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Mapping


def write_ranks(path: Path, ranks: Mapping[str, Any]) -> bool:
    """Write pid, GPU variables, attempt and local rank of each rank that runs, by its number, and return whether that was done.

    A memory file system that is full is not our ranks' loss.
    """
    new = path.with_suffix(".new")
    try:
        new.write_text(json.dumps(ranks))
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        return False
    return True


def read_ranks(path: Path) -> dict[int, dict[str, Any]]:
    """Return pid, GPU variables, attempt and local rank of each rank that runs, as the agent left them; none when there are none yet."""
    try:
        return {int(rank): about for rank, about in json.loads(path.read_bytes()).items()}
    except (OSError, ValueError):
        return {}
