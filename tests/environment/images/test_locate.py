"""Where the image of an environment lies on this machine."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from cordee.environment.document import Environment, Root
from cordee.environment.images import ImageError, Store, locate


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "sh").write_bytes(random.Random(1).randbytes(20000))
    return root


def squashfs_of(folder: Path) -> Path:
    path = folder.with_suffix(".sqsh")
    subprocess.run(["mksquashfs", folder, path, "-quiet", "-no-progress"], check=True, capture_output=True)
    return path


def test_no_image_is_the_root_of_the_host(store: Store) -> None:
    assert locate(Environment("e"), store).root == Root("host")


def test_a_folder_is_the_root_itself(store: Store, folder: Path) -> None:
    assert locate(Environment("e", image=str(folder)), store).root == Root("folder", str(folder))


def test_a_squashfs_file_is_mounted_where_it_lies(store: Store, folder: Path) -> None:
    path = squashfs_of(folder)
    assert locate(Environment("e", image=str(path)), store).root == Root("squashfs", str(path))


def test_a_path_that_is_not_there_is_said_to_be_missing(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no such image file"):
        locate(Environment("e", image=str(tmp_path / "x.sqsh")), store)


def test_a_squashfs_that_is_cut_off_is_said_to_be_so(store: Store, folder: Path) -> None:
    path = squashfs_of(folder)
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(ImageError, match=r"cut off: .* of .* are there"):
        locate(Environment("e", image=str(path)), store)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty file"),
        (b"hsqs", "cut off"),
        (b"hello", "no squashfs file"),
        (b"\x1f\x8b\x08", "but a gzip file"),
        (b"#!/usr/bin/env run-singularity\n", "but a SIF image"),
        (b"version https://git-lfs.github.com/spec/v1", "git-lfs"),
        (b"<html>", "a web page"),
    ],
)
def test_a_file_that_is_no_squashfs_is_named_by_what_it_is(
    content: bytes, words: str, store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "x.sqsh"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=words):
        locate(Environment("e", image=str(path)), store)


def test_a_reference_that_is_not_in_the_store_says_how_to_get_it(store: Store) -> None:
    with pytest.raises(ImageError, match=r"cordee env pull docker.io/library/ubuntu:24.04"):
        locate(Environment("e", image="ubuntu:24.04"), store)
