"""Where the image of an environment lies on this machine."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.systems.environments.images import ImageError, ImageStore, locate
from cordee.systems.environments.node.document import ContainerRoot, Environment
from cordee.testing.oci import LayerEntry, OciLayout


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


def test_no_image_is_the_root_of_the_host(store: ImageStore) -> None:
    assert locate(Environment("e"), store).root == ContainerRoot("host")


def test_a_folder_is_the_root_itself(store: ImageStore, folder: Path) -> None:
    assert locate(Environment("e", image=str(folder)), store).root == ContainerRoot("folder", str(folder))


def test_a_squashfs_file_is_mounted_where_it_lies(store: ImageStore, folder: Path) -> None:
    path = squashfs_of(folder)
    assert locate(Environment("e", image=str(path)), store).root == ContainerRoot("squashfs", str(path))


def test_a_path_that_is_not_there_is_said_to_be_missing(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no such image file"):
        locate(Environment("e", image=str(tmp_path / "x.sqsh")), store)


def test_a_squashfs_that_is_cut_off_is_said_to_be_so(store: ImageStore, folder: Path) -> None:
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
    content: bytes, words: str, store: ImageStore, tmp_path: Path
) -> None:
    path = tmp_path / "x.sqsh"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=words):
        locate(Environment("e", image=str(path)), store)


def test_a_reference_that_is_not_in_the_store_says_how_to_get_it(store: ImageStore) -> None:
    with pytest.raises(ImageError, match=r"cordee env pull docker.io/library/ubuntu:24.04"):
        locate(Environment("e", image="ubuntu:24.04"), store)


@pytest.fixture
def layout(layout: OciLayout) -> OciLayout:
    layout.add([[LayerEntry("a", b"1")]], config={"Env": ["A=1"], "WorkingDir": "/w"}, tag="one")
    return layout


@pytest.mark.parametrize("text", ["oci:{}", "oci:{}:one", "{}"])
def test_a_layout_is_imported_when_it_is_used_first(store: ImageStore, layout: OciLayout, text: str) -> None:
    said: list[str] = []
    environment = Environment("e", image=text.format(layout.folder), env={"B": "2"})
    found = locate(environment, store, say=said.append)
    assert (found.config.env, found.config.workdir, found.env) == ({"A": "1"}, "/w", {"B": "2"})
    assert found.root is not None
    assert found.root.kind == "squashfs"
    assert said
    said.clear()
    assert locate(environment, store, say=said.append) == found
    assert said == []


@pytest.mark.parametrize("text", ["oci-archive:{}", "oci-archive:{}:one", "{}"])
def test_an_archive_is_known_by_what_is_in_it(store: ImageStore, layout: OciLayout, tmp_path: Path, text: str) -> None:
    path = layout.archive(tmp_path / "image.tar")
    environment = Environment("e", image=text.format(path))
    first = locate(environment, store)
    assert first.config.env == {"A": "1"}
    (layout.folder / "index.json").unlink()
    OciLayout(layout.folder).add([[LayerEntry("a", b"2")]], tag="one")
    layout.archive(path)
    assert locate(environment, store).root != first.root


def test_a_file_of_the_store_brings_its_configuration(store: ImageStore, layout: OciLayout) -> None:
    found = locate(Environment("e", image=f"oci:{layout.folder}"), store)
    assert found.root is not None
    by_path = locate(Environment("e", image=found.root.path), ImageStore(Path("/nowhere")))
    assert (by_path.root, by_path.config) == (found.root, found.config)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 100)], ids=["lost", "cut off"])
def test_an_image_that_the_store_has_lost_is_imported_again(
    store: ImageStore, layout: OciLayout, harm: Callable[[Path], None]
) -> None:
    environment = Environment("e", image=f"oci:{layout.folder}")
    found = locate(environment, store)
    assert found.root is not None
    size = Path(found.root.path).stat().st_size
    harm(Path(found.root.path))
    assert locate(environment, store) == found
    assert Path(found.root.path).stat().st_size == size


def test_a_file_that_is_not_there_is_named_in_both_readings(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "image.sqsh").touch()
    with pytest.raises(ImageError, match=r"(?s)no such image file.*docker://imagge\.sqsh.*there is image\.sqsh"):
        locate(Environment("e", image="imagge.sqsh"), store)
    with pytest.raises(ImageError, match=r"(?s)not in the store, nor is there a path of that name"):
        locate(Environment("e", image="image"), store)


def test_what_is_no_image_at_all_is_refused(store: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_bytes(b"x" * 5000)
    for text in (str(tmp_path / "image.tar"), f"oci-archive:{tmp_path / 'image.tar'}", "/dev/null"):
        with pytest.raises(ImageError):
            locate(Environment("e", image=text), store)


def program_for(machine: int) -> bytes:
    """Return the beginning of a program for a machine, by its number in elf.h."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little") + machine.to_bytes(2, "little") + bytes(40)


@pytest.mark.parametrize("squashed", [False, True])
@pytest.mark.parametrize("program", ["usr/bin/bash", "bin/busybox"])
def test_a_root_for_another_machine_is_refused(store: ImageStore, folder: Path, squashed: bool, program: str) -> None:
    (folder / program).parent.mkdir(parents=True, exist_ok=True)
    (folder / program).write_bytes(program_for(0x16))
    image = squashfs_of(folder) if squashed else folder
    with pytest.raises(ImageError, match=r"(?s)not for this machine.*for s390x"):
        locate(Environment("e", image=str(image)), store)


@pytest.mark.parametrize("squashed", [False, True])
def test_a_root_for_this_machine_is_taken(store: ImageStore, folder: Path, squashed: bool) -> None:
    shutil.copy(Path("/bin/sh").resolve(), folder / "bin" / "dash")
    image = squashfs_of(folder) if squashed else folder
    assert locate(Environment("e", image=str(image)), store).root


def test_a_link_out_of_a_root_is_not_followed_for_its_machine(store: ImageStore, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(program_for(0x16))
    (folder / "bin" / "busybox").symlink_to(tmp_path / "elsewhere")
    assert locate(Environment("e", image=str(folder)), store).root
