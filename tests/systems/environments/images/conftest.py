"""Stores, images made by hand, and what a squashfs file holds."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cordee.machine.images.oci import OciImage, open_image
from cordee.systems.environments.images.grown import Stem, grow
from cordee.systems.environments.images.merged import MergedLayers, merge
from cordee.systems.environments.images.store.image_store import ImageStore
from cordee.testing.oci import LayerEntry, OciLayout
from cordee.testing.patience import wait_until


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


@pytest.fixture
def layout(tmp_path: Path) -> OciLayout:
    return OciLayout(tmp_path / "layout")


def held(path: Path) -> dict[str, tuple[str, str | bytes]]:
    """Return what a squashfs file holds: by path, the mode as `ls` shows it, and the data or the target."""
    out = path.parent / f"{path.name}-unpacked"
    done = subprocess.run(["unsquashfs", "-q", "-n", "-d", out, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, str | bytes]] = {}
    for folder, folders, files in os.walk(out):
        for name in (*folders, *files):
            each = Path(folder) / name
            mode = stat.filemode(each.lstat().st_mode)
            data: str | bytes = b""
            if each.is_symlink():
                data = os.readlink(each)
            elif each.is_file():
                data = each.read_bytes()
            found[str(each.relative_to(out))] = mode, data
    return found


def wait_for_no_process(words: str) -> None:
    """Wait until no command line has these words in it."""
    wait_until(
        lambda: not any(words.encode() in line for line in command_lines()), said=lambda: f"a process is left: {words}"
    )


def command_lines() -> list[bytes]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes())
        except OSError:
            continue
    return lines


class Merge:
    """Merges layers into a squashfs file and gives what is in it; everything happens below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.found = MergedLayers()

    @property
    def made(self) -> Path:
        """The file of the last merge."""
        return self.folder / f"{self.count}.squashfs"

    def __call__(self, *layers: Iterable[LayerEntry] | bytes, compression: str = "none") -> dict[str, str | bytes]:
        """Return data and targets by path, without folders."""
        return {
            path: data for path, (mode, data) in self.whole(*layers, compression=compression).items() if mode[0] != "d"
        }

    def whole(
        self, *layers: Iterable[LayerEntry] | bytes, compression: str = "none"
    ) -> dict[str, tuple[str, str | bytes]]:
        """Return mode and data of every path."""
        self.count += 1
        layout = OciLayout(self.folder / f"layout-{self.count}")
        layout.add(layers, compression=compression)
        image = open_image(layout.folder)
        self.found = merge(image, self.made)
        whole = held(self.made)
        for below in range(1, len(image.layers)):
            self.grown(image, below, whole)
        return whole

    def grown(self, image: OciImage, below: int, whole: dict[str, tuple[str, str | bytes]]) -> None:
        """Check that the same comes of a squashfs file of the lower layers and what is over them."""
        place = self.folder / f"grown-{self.count}-{below}"
        place.mkdir()
        found = grow(image, Stem(below, place / "stems"), place / "made")
        assert (held(place / "made"), found) == (whole, self.found)


@pytest.fixture
def merged(tmp_path: Path) -> Merge:
    return Merge(tmp_path)


@pytest.fixture
def untouched(tmp_path: Path) -> Iterator[None]:
    """Check after the test that nothing was written beside what was asked for."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("as it was")
    yield
    assert [path.name for path in outside.iterdir()] == ["victim"]
    assert (outside / "victim").read_text() == "as it was"
