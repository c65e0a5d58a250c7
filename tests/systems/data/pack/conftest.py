"""Small trees of files to pack."""

from __future__ import annotations

import random
from pathlib import Path

import pytest


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """40 files of up to 9 kB in 4 classes, two of them empty."""
    draw = random.Random(7)
    for number in range(40):
        folder = tmp_path / "images" / f"n{number % 4:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        size = draw.randrange(1, 9000) if number not in (5, 20) else 0
        (folder / f"img_{number:04d}.jpg").write_bytes(draw.randbytes(size))
    return tmp_path / "images"
