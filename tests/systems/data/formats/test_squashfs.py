"""One image for code that opens paths."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.pack._base import PackOptions, PackResult
from cordee.systems.data.pack.build import pack, plan_of


def image(folder: Path, to: Path, **options: object) -> PackResult:
    return pack(plan_of(str(folder)), str(to), PackOptions(**options), target="squashfs")


def unpacked(path: Path, to: Path) -> dict[bytes, bytes]:
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-d", str(to), str(path)], check=True, capture_output=True)
    return {os.fsencode(one.relative_to(to)): one.read_bytes() for one in to.rglob("*") if one.is_file()}


def test_an_image_gives_back_every_file_and_empty_folder(
    folder: Path, files: dict[bytes, bytes], tmp_path: Path
) -> None:
    (folder / "none" / "within").mkdir(parents=True)
    image(folder, tmp_path / "made" / "x.squashfs")
    assert unpacked(tmp_path / "made" / "x.squashfs", tmp_path / "back") == files
    assert (tmp_path / "back" / "none" / "within").is_dir()
    assert sorted(os.listdir(tmp_path / "made")) == ["x.squashfs", "x.squashfs.packed.json"]


def test_the_same_files_make_the_same_image(folder: Path, tmp_path: Path) -> None:
    image(folder, tmp_path / "one.squashfs")
    time.sleep(1.1)  # times in it count whole seconds
    image(folder, tmp_path / "two.squashfs", workers=2)
    assert (tmp_path / "one.squashfs").read_bytes() == (tmp_path / "two.squashfs").read_bytes()


def test_packing_again_says_that_the_image_is_there_as_long_as_it_is(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "x.squashfs"
    first = image(folder, made)
    before = made.stat()
    again = image(folder, made)
    assert (first.already, again.already) == (False, True)
    assert (again.samples, again.bytes, again.left_out) == (first.samples, first.bytes, first.left_out)
    assert (made.stat().st_ino, made.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    os.truncate(made, before.st_size - 1)
    with pytest.raises(UsageError, match="not whole any more"):
        image(folder, made)
    (tmp_path / "x.squashfs.packed.json").write_text("{")
    with pytest.raises(UsageError, match="nothing says what it was made of"):
        image(folder, made)
    assert not image(folder, made, restart=True).already
    assert image(folder, made).already


def test_an_image_is_not_replaced_unasked_and_nothing_else_is_left(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "out" / "x.sqsh"
    plan = plan_of(str(folder))
    (folder / "dog" / "001.jpg").unlink()
    with pytest.raises(DataError, match="cannot be read"):
        pack(plan, str(made), PackOptions(), target="squashfs")
    assert os.listdir(tmp_path / "out") == []
    result = pack(plan, str(made), PackOptions(skip_unreadable=True), target="squashfs")
    assert result.left_out == {"unreadable": ["dog/001.jpg: is gone"]}
    with pytest.raises(UsageError, match=r"is there already.*it has changed"):
        image(folder, made)
    image(folder, made, restart=True)
    with pytest.raises(UsageError, match="an image is one file"):
        image(folder, tmp_path / "out")
