"""A small virtual environment with everything in it that packing has to mind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MANY_BYTES = 300_000  # more than a pipe holds


class Venv:
    """A virtual environment of the base interpreter, without pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"
        self.site = next(folder.glob("lib/python*/site-packages"))

    def add(self, name: str, text: str | bytes = "", mode: int = 0o644) -> Path:
        """Write a file below the folder; `site/` stands for where packages are."""
        path = self.site / name[5:] if name.startswith("site/") else self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return path

    def python_says(self, code: str, folder: Path | None = None) -> str:
        """Return what the interpreter of the environment, or of its copy in `folder`, prints."""
        python = (folder or self.folder) / "bin" / "python"
        return subprocess.run([python, "-B", "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    def state(self) -> dict[str, tuple[int, int]]:
        """Return size and time of everything in the folder."""
        return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in sorted(self.folder.rglob("*"))}


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    made = Venv(tmp_path / "envs" / "train")
    made.add("site/thing/__init__.py", "value = 1\n")
    made.add("site/thing/data.bin", b"\x07" * MANY_BYTES)
    made.add("site/thing/" + "long-" * 40 + ".txt", "long")
    made.add("site/thing-1.0.dist-info/RECORD", "thing/__init__.py,,\nthing/data.bin,,\n")
    made.add("bin/tool", f"#!{made.folder}/bin/python\nimport thing\nprint('tool', thing.value)\n", 0o755)
    return made


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[Path, Path], Path]:
    """A function that puts what is in a pack into a folder, as a mount would show it."""

    def unpack(file: Path, folder: Path) -> Path:
        subprocess.run(["unsquashfs", "-n", "-q", "-f", "-d", folder, file], check=True, capture_output=True)
        return folder

    return unpack
