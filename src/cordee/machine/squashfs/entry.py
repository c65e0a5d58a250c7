"""What one squashfs file is made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class SquashfsEntry:
    """One file, folder or link of the pack.

    Attributes:
        name: its path inside, relative.
        kind: what it is.
        mode: 0755 or 0644: what the owner may do everybody may, as the mounted file belongs to nobody in particular.
        time: of its last change, seconds since the epoch.
        size: bytes of a file.
        source: where its bytes are; None: they are in `data`.
        data: the bytes where they differ from those of any file.
        target: of a link.
        compile: whether its byte code goes along.
    """

    name: str
    kind: Literal["file", "folder", "link"]
    mode: int = 0o755
    time: int = 0
    size: int = 0
    source: Path | None = None
    data: bytes | None = None
    target: str = ""
    compile: bool = False
