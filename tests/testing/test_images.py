"""The images that tests are run in."""

from __future__ import annotations

import subprocess

from cordee.testing.images import busybox_root, busybox_squashfs


def test_a_busybox_root_runs_a_shell_and_its_commands(tmp_path):
    root = busybox_root(tmp_path / "root")
    done = subprocess.run(
        ["chroot", root, "sh", "-c", "ls /etc && env A=b sh -c 'echo $A'"], capture_output=True, text=True
    )
    assert done.stdout.split() == ["group", "os-release", "passwd", "b"], done.stderr


def test_a_squashfs_of_it_lists_the_same_tree(tmp_path):
    image = busybox_squashfs(tmp_path / "image.sqsh")
    listed = subprocess.run(["unsquashfs", "-ll", image], capture_output=True, text=True, check=True).stdout
    assert "squashfs-root/bin/sh -> busybox" in listed
    assert "root/root" in listed
