"""Mounts of the namespace engine: where they go, what may be done there, and that nothing leads out of the image."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from cordee.systems.environments.node.document import ContainerRoot, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EXIT_ENGINE, EngineLaunch
from cordee.testing.containers import ENV, left_behind, mounts
from cordee.testing.images import squashfs_of


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("kind", ["folder", "squashfs"])
def test_folders_and_files_are_mounted_where_the_image_has_nothing(run, place, kind, writable):
    (place / "file").write_text("text\n")
    found = mounts(f"{place}:/new/place", f"{place}/file:/etc/deep/file", f"{place}:/mnt")
    done = run(
        "cat",
        "/new/place/file",
        "/etc/deep/file",
        "/mnt/file",
        "/etc/os-release",
        kind=kind,
        mounts=found,
        writable=writable,
    )
    assert done.stdout.splitlines()[:3] == ["text"] * 3, done.stderr
    assert "busybox" in done.stdout


def test_what_is_written_to_a_mount_stays_unless_it_is_read_only(run, place):
    done = run("sh", "-c", "echo x > /a/new; echo y > /b/other", mounts=mounts(f"{place}:/a", f"{place}:/b:ro"))
    assert "Read-only file system" in done.stderr
    assert [path.name for path in place.iterdir()] == ["new"]


def test_read_only_holds_for_what_is_mounted_below_the_source(run):
    done = run("sh", "-c", "touch /all/shm/x; touch /all/x", mounts=mounts("/dev:/all:ro"))
    assert done.stderr.count("Read-only file system") == 2, done.stderr


def test_flags_of_a_mount_are_set(run, place):
    shutil.copy("/bin/busybox", place / "true")
    done = run("/a/true", mounts=mounts(f"{place}:/a:noexec+nosuid+nodev"))
    assert done.returncode == 126
    seen = run("grep", " /a ", "/proc/self/mountinfo", mounts=mounts(f"{place}:/a:ro+nosuid+nodev+rprivate")).stdout
    assert {"ro", "nosuid", "nodev"} <= set(seen.split()[5].split(","))
    assert "master:" not in seen


@pytest.mark.parametrize("kind", ["folder", "squashfs"])
def test_an_image_gives_no_rights_by_set_user_id_programs_or_device_files(run, place, kind):
    (place / "tree").mkdir()
    packed = squashfs_of(place / "tree", place / "tree.sqsh")
    seen = run("cat", "/proc/self/mountinfo", kind=kind, mounts=mounts(f"{packed}:/packed:sqsh")).stdout
    options = {line.split()[4]: set(line.split()[5].split(",")) for line in seen.splitlines()}
    assert {"nosuid", "nodev"} <= options["/"]
    assert {"nosuid", "nodev"} <= options["/packed"]


def test_squashfs_files_are_mounted_as_folders(run, place):
    (place / "tree").mkdir()
    (place / "tree/inside").write_text("text\n")
    packed = squashfs_of(place / "tree", place / "tree.sqsh")
    found = mounts(f"{packed}:/packed:sqsh", f"{packed}:/mnt/again:sqsh+ro", f"{place}:/all")
    done = run("cat", "/packed/inside", "/mnt/again/inside", "/all/tree/inside", mounts=found)
    assert done.stdout == "text\n" * 3, done.stderr
    assert left_behind(str(packed)) == []


def test_squashfs_files_are_mounted_without_an_image(run, place):
    (place / "tree").mkdir()
    (place / "tree/inside").write_text("text\n")
    packed = squashfs_of(place / "tree", place / "tree.sqsh")
    done = run("cat", f"{place}/tree/inside", kind="host", mounts=mounts(f"{packed}:{place}/tree:sqsh"))
    assert done.stdout == "text\n", done.stderr


def test_mounts_within_mounts_are_made_in_order(run, place):
    for name in ("a", "b", "b/sub"):
        (place / name).mkdir(mode=0o777)
        (place / name).chmod(0o777)
        (place / name / "file").write_text(f"{name}\n")
    found = mounts(f"{place}/b:/data", f"{place}/a:/data/sub", f"{place}/a:/data/made", f"{place}/a:/tmp/x/y")
    done = run("cat", "/data/file", "/data/sub/file", "/data/made/file", "/tmp/x/y/file", mounts=found)
    assert done.stdout.split() == ["b", "a", "a", "a"], done.stderr


def test_sources_that_are_links_or_below_tmp_are_found(run, place):
    (place / "real").mkdir()
    (place / "real/file").write_text("text\n")
    (place / "link").symlink_to(place / "real")
    assert str(place).startswith("/tmp/")
    assert run("cat", "/a/file", mounts=mounts(f"{place}/link:/a")).stdout == "text\n"


def test_a_thousand_mounts_are_made(run, place):
    (place / "file").write_text("text\n")
    found = mounts(*(f"{place}:/many/of/them/{number}:ro" for number in range(1000)))
    done = run("sh", "-c", "cat /many/of/them/*/file | wc -l", mounts=found)
    assert done.stdout.strip() == "1000", done.stderr


def test_missing_sources_are_named_before_anything_starts(run, place):
    done = run("echo", "started", mounts=mounts(f"{place}/no:/a"))
    assert (done.returncode, done.stdout) == (EXIT_ENGINE, "")
    assert f"{place}/no" in done.stderr
    assert "does not exist" in done.stderr


def test_a_file_does_not_go_over_a_folder_nor_a_folder_over_a_file(run, place):
    (place / "file").write_text("text")
    over_folder = run("true", mounts=mounts(f"{place}/file:/etc"))
    over_file = run("true", mounts=mounts(f"{place}:/etc/passwd"))
    below_file = run("true", mounts=mounts(f"{place}:/etc/passwd/x"))
    assert [done.returncode for done in (over_folder, over_file, below_file)] == [EXIT_ENGINE] * 3
    assert "has a folder" in over_folder.stderr
    assert "has a file" in over_file.stderr
    assert "not a folder" in below_file.stderr


def test_the_folders_of_the_engine_itself_can_be_mounted_over(run, place):
    (place / "file").write_text("text\n")
    found = mounts("/tmp:/tmp", "/dev:/dev", f"{place}:/sys/fs", "/proc:/mnt", "/:/host")
    done = run(
        "sh",
        "-c",
        f"cat {place}/file /sys/fs/file /host{place}/file; test -e /dev/full && test -e /mnt/self && echo fine",
        mounts=found,
    )
    assert done.stdout.split() == ["text", "text", "text", "fine"], done.stderr


def test_nothing_goes_over_the_root_itself(run, place):
    done = run("true", mounts=mounts(f"{place}:/opt/.."))
    assert done.returncode == EXIT_ENGINE
    assert "over the root itself" in done.stderr


def test_without_an_image_a_target_has_to_exist(run, place):
    done = run("true", kind="host", mounts=mounts(f"{place}:{place}/no/such"))
    assert done.returncode == EXIT_ENGINE
    assert f"mkdir -p {place}/no/such" in done.stderr
    assert list(place.iterdir()) == []


def hostile(images: Path, place: Path) -> Environment:
    """A root whose links lead out of it, if the host follows them."""
    root = place / "root"
    shutil.copytree(images / "root", root, symlinks=True)
    (place / "outside").mkdir(mode=0o777)
    (place / "outside").chmod(0o777)
    (root / "absolute").symlink_to(place / "outside")
    (root / "relative").symlink_to("../" * 20 + str(place / "outside").lstrip("/"))
    (root / "round").symlink_to("round")
    (root / "etc/resolv.conf").symlink_to(place / "outside/resolv.conf")
    shutil.rmtree(root / "tmp")
    (root / "tmp").symlink_to(place / "outside")
    for folder in ("proc", "sys", "dev"):
        shutil.rmtree(root / folder)
        (root / folder).symlink_to(place / "outside")
    return Environment("test", str(root), root=ContainerRoot("folder", str(root)))


@pytest.mark.parametrize("target", ["/absolute/made/file", "/relative/made/file", "/opt/../absolute/x"])
def test_links_in_an_image_do_not_lead_out_of_it(images, who, place, target):
    found = hostile(images, place)
    (place / "source").write_text("text\n")
    asked = Environment("test", found.image, root=found.root, mounts=mounts(f"{place}/source:{target}"))
    words = find_engine("namespace").argv(asked, EngineLaunch(("cat", target), ENV))
    done = subprocess.run([*who, *words], env=ENV, capture_output=True, text=True)
    assert list((place / "outside").iterdir()) == []
    assert not Path("/proc/self/mountinfo").read_text().count(place.name)
    assert (done.returncode, done.stdout) == (0, "text\n"), done.stderr


def test_links_in_a_circle_end_with_words(images, who, place):
    found = hostile(images, place)
    asked = Environment("test", found.image, root=found.root, mounts=mounts(f"{place}:/round/x"))
    done = subprocess.run(
        [*who, *find_engine("namespace").argv(asked, EngineLaunch(("true",), ENV))],
        env=ENV,
        capture_output=True,
        text=True,
    )
    assert done.returncode == EXIT_ENGINE
    assert "too many symbolic links" in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"#!/bin/sh\n", "not a squashfs file"),
        (b"\x1f\x8b" + bytes(500), "a gzip file"),
        (b"hsqs" + bytes(10), "cut off"),
    ],
)
def test_an_image_that_is_no_squashfs_is_told_by_what_it_is(run, place, who, content, words):
    (place / "image").write_bytes(content)
    (place / "image").chmod(0o644)
    asked = Environment("test", str(place / "image"), root=ContainerRoot("squashfs", str(place / "image")))
    done = subprocess.run(
        [*who, *find_engine("namespace").argv(asked, EngineLaunch(("true",), ENV))],
        env=ENV,
        capture_output=True,
        text=True,
    )
    assert done.returncode == EXIT_ENGINE
    assert words in done.stderr
    assert str(place / "image") in done.stderr


def test_a_squashfs_that_is_cut_off_or_damaged_is_refused_and_leaves_nothing(images, who, place):
    whole = (images / "root.sqsh").read_bytes()
    damaged = bytearray(whole)
    damaged[48:96] = b"\xff" * 48
    for name, content in (("cut", whole[: len(whole) // 2]), ("damaged", bytes(damaged))):
        (place / name).write_bytes(content)
        (place / name).chmod(0o644)
        asked = Environment("test", str(place / name), root=ContainerRoot("squashfs", str(place / name)))
        started = time.monotonic()
        done = subprocess.run(
            [*who, *find_engine("namespace").argv(asked, EngineLaunch(("true",), ENV))],
            env=ENV,
            capture_output=True,
            text=True,
        )
        assert done.returncode == EXIT_ENGINE, done.stderr
        assert str(place / name) in done.stderr
        assert "/proc/self/fd" not in done.stderr
        assert time.monotonic() - started < 30
    assert left_behind(place.name) == []


def test_an_image_folder_that_is_missing_or_a_file_is_named(run, who, place):
    for path in (place / "no", Path("/etc/hostname")):
        asked = Environment("test", str(path), root=ContainerRoot("folder", str(path)))
        done = subprocess.run(
            [*who, *find_engine("namespace").argv(asked, EngineLaunch(("true",), ENV))],
            env=ENV,
            capture_output=True,
            text=True,
        )
        assert done.returncode == EXIT_ENGINE
        assert str(path) in done.stderr
