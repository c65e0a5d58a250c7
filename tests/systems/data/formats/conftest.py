"""A small folder of samples, and what it holds."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of pictures, some with a description, and files whose names no reader of WebDataset would keep."""
    draw = random.Random(8)
    top = tmp_path / "pictures"
    for kind in ("cat", "dog"):
        (top / kind).mkdir(parents=True)
        for number in range(20):
            (top / kind / f"{number:03}.jpg").write_bytes(draw.randbytes(draw.randrange(3000)) + b"\0\0")
            if number % 3 == 0:
                (top / kind / f"{number:03}.json").write_text(f'{{"number": {number}}}')
    (top / "cat" / "empty.jpg").write_bytes(b"")
    (top / "dog" / "no ending").write_bytes(b"odd")
    Path(os.fsdecode(os.fsencode(top / "dog") + b"/line\nbreak \xff.jpg")).write_bytes(b"odder")
    return top


@pytest.fixture
def files(folder: Path) -> dict[bytes, bytes]:
    """Every file's bytes by its name below the folder."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            found[os.fsencode(path.relative_to(folder))] = path.read_bytes()
    return found
