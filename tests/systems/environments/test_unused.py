"""Which packages of an image a command opens no file of, as root and as a user without rights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.testing.containers import AS_USER
from cordee.testing.images import busybox_root, squashfs_of
from support.open_python import OpenPython

SITE = "usr/lib/python3/dist-packages"
RECORD = "{name}/__init__.py,,9\n{name}/more.py,,9\n{name}-1.0.dist-info/RECORD,,\n"


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """Two packages of Python, one of them in byte code; two of Debian, whose files lie behind a link; one file of nobody's."""
    folder = Path(tempfile.mkdtemp(prefix="cordee-unused-", dir="/var/tmp"))
    folder.chmod(0o755)
    root = busybox_root(folder / "root")
    texts = {f"{SITE}/{name}-1.0.dist-info/RECORD": RECORD.format(name=name) for name in ("rope", "piton")}
    texts |= {f"{SITE}/{name}/{file}.py": "x" * 1000 for name in ("rope", "piton") for file in ("__init__", "more")}
    texts |= {f"{SITE}/rope/__pycache__/__init__.cpython-311.pyc": "y" * 500, "usr/lib/libone.so.1.2": "z" * 300}
    texts |= {"var/lib/dpkg/info/libone:amd64.list": "/.\n/lib\n/lib/libone.so.1.2\n", "opt/mine": "m" * 50}
    texts |= {"var/lib/dpkg/info/two.list": "/usr/lib/two\n", "usr/lib/two": "t" * 200}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "lib").rmdir()
    (root / "lib").symlink_to("usr/lib")
    (root / "usr/lib/libone.so").symlink_to("libone.so.1.2")
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755)
    squashfs_of(root, folder / "image.sqsh")
    (folder / "env.toml").write_text(f'image = "{folder}/image.sqsh"\nworkdir = "/usr"\n')
    yield folder / "env.toml"
    shutil.rmtree(folder)


def unused(edf: Path, python: OpenPython, front: list[str], *words: str) -> tuple[int, str, str]:
    command = [*front, python.executable, "-m", "cordee.cli", "env", "unused", str(edf), *words]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": python.source, "HOME": "/nowhere"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("front", [[], AS_USER], ids=["root", "user"])
def test_what_a_command_opens_counts_for_its_package_by_whatever_name(image, open_to_all: OpenPython, front):
    script = f"cat /lib/libone.so /{SITE}/rope/__pycache__/__init__.cpython-311.pyc; cd /opt; cat mine; ls /{SITE}/piton; exit 3"
    code, out, said = unused(image, open_to_all, front, "--json", "--", "sh", "-c", script)
    assert code == 3, said
    found = {each["name"]: each for each in json.loads(out)["packages"]}
    assert {name: (each["kind"], each["opened_bytes"], each["bytes"]) for name, each in found.items()} == {
        "rope": ("pypi", 500, 2500 + len(RECORD.format(name="rope"))),
        "piton": ("pypi", 0, 2000 + len(RECORD.format(name="piton"))),
        "libone": ("deb", 300, 300),
        "two": ("deb", 0, 200),
    }
    assert json.loads(out)["of_no_package"]["opened_bytes"] >= 50
    assert "zzz" in said  # the command's own words


def test_a_relative_name_counts_and_lists_of_packages_do_not(image, open_to_all: OpenPython):
    script = f"cd lib; cat two; cat /{SITE}/piton-1.0.dist-info/RECORD"
    code, out, said = unused(image, open_to_all, [], "sh", "-c", script)
    assert code == 0
    assert out.startswith("t" * 200)
    assert "3 of 4 packages were not opened" in said
    assert "two" not in said
    assert "piton 1.0" in said


def test_a_command_that_is_not_there_and_an_environment_without_an_image_are_said(image, open_to_all, tmp_path):
    assert unused(image, open_to_all, [], "nowhere")[0] == 127
    (tmp_path / "env.toml").write_text("")
    code, _, said = unused(tmp_path / "env.toml", open_to_all, [], "true")
    assert code == 2
    assert "only the files of a squashfs image" in said


def test_the_interpreters_of_scripts_count_though_the_kernel_opens_them_of_itself(
    open_to_all: OpenPython, tmp_path: Path
):
    root = busybox_root(tmp_path / "root")
    for name in ("script", "unused"):
        (root / "opt").mkdir(exist_ok=True)
        (root / "opt" / name).write_text("#! /opt/wrapper x\n")
        (root / "opt" / name).chmod(0o755)
    (root / "opt/wrapper").write_text("#!/opt/busybox sh\nexit 4\n")
    (root / "opt/wrapper").chmod(0o755)
    shutil.copyfile(root / "bin/busybox", root / "opt/busybox")
    (root / "opt/busybox").chmod(0o755)
    lists = root / "var/lib/dpkg/info"
    lists.mkdir(parents=True)
    for name in ("script", "unused", "wrapper", "busybox"):
        (lists / f"{name}.list").write_text(f"/opt/{name}\n")
    squashfs_of(root, tmp_path / "image.sqsh")
    (tmp_path / "env.toml").write_text(f'image = "{tmp_path}/image.sqsh"\n')
    code, out, said = unused(tmp_path / "env.toml", open_to_all, [], "--json", "--", "/opt/script")
    assert code == 4, said
    assert {each["name"] for each in json.loads(out)["packages"] if not each["opened_files"]} == {"unused"}
