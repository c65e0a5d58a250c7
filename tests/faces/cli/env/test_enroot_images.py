"""Images as `enroot import` leaves them: workdir, entrypoint, command and variables are in files of the root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# What `enroot import` writes into the root of an image (docker::configure of enroot 3.5), by what the image's configuration says.
RC = """# enroot-provenance: docker://nvcr.io#nvidia/pytorch:25.06-py3
# com.nvidia.volumes.needed nvidia_driver

mkdir -p "{workdir}" 2> /dev/null
cd "{workdir}" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec {entrypoint} "$@"
else
    exec {entrypoint} {command}
fi
"""
LOCAL = "# This file is sourced by /etc/rc when the container starts.\n"
ENVIRON = """PATH=/opt/conda/bin:/usr/bin
LD_LIBRARY_PATH=/usr/local/cuda/lib64
GREETING="two words"
OF_THE_HOST=in ${HOME}
ENROOT_HIDDEN=1
a line that is no variable
"""
FSTAB = "${ENROOT_ROOTFS}/data /data none x-create=dir,bind,rw,nosuid,nodev\n"


class Made:
    """The root of an image in a folder, to be packed."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        for name in ("etc", "workspace", "data"):
            (self.root / name).mkdir(parents=True)
        self.write(
            "rc", RC.format(workdir="/workspace", entrypoint="'/opt/nvidia/start.sh'", command="'/bin/bash' '-l'")
        )
        self.write("rc.local", LOCAL)
        self.write("environment", ENVIRON)
        self.write("fstab", FSTAB)

    def write(self, name: str, text: str) -> None:
        (self.root / "etc" / name).write_text(text)

    def pack(self) -> Path:
        path = self.root.with_name("image.sqsh")
        path.unlink(missing_ok=True)
        command = ["mksquashfs", str(self.root), str(path), "-quiet", "-no-progress", "-comp", "lzo", "-noD"]
        subprocess.run(command, check=True, capture_output=True)
        return path


@pytest.fixture
def image(tmp_path: Path) -> Made:
    return Made(tmp_path)


@pytest.fixture
def resolved(env: Callable[..., Any], image: Made, tmp_path: Path) -> Callable[..., dict]:
    """Return what `env resolve` says of an EDF with the packed image."""

    def resolve(edf: str = "", packed: bool = True) -> dict:
        path = image.pack() if packed else image.root
        (tmp_path / "env.toml").write_text(f'image = "{path}"\n{edf}')
        done = env("resolve", "env.toml", "--json")
        assert done.code == 0, done.err
        return done.json

    return resolve


@pytest.mark.parametrize("packed", [True, False], ids=["squashfs", "folder"])
def test_workdir_entrypoint_command_and_variables_are_read(resolved, packed):
    config = resolved(packed=packed)["config"]
    assert config["workdir"] == "/workspace"
    assert config["entrypoint"] == ["/opt/nvidia/start.sh"]
    assert config["command"] == ["/bin/bash", "-l"]
    assert config["env"] == {
        "PATH": "/opt/conda/bin:/usr/bin",
        "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
        "GREETING": "two words",
        "OF_THE_HOST": "in /users/me",
    }


def test_a_variable_in_env_is_the_images(resolved):
    env = resolved('[env]\nLD_LIBRARY_PATH = "/opt/mine:${LD_LIBRARY_PATH}"\n')["env"]
    assert env == {"LD_LIBRARY_PATH": "/opt/mine:/usr/local/cuda/lib64"}


def test_words_are_those_that_bash_quoted(resolved, image):
    words = ["it's", "a b", "two\nlines", "é", "$HOME", "", "back\\slash\nE\\E"]
    quoted = subprocess.run(
        ["bash", "-c", 'echo "${@@Q}"', "bash", *words], check=True, capture_output=True, text=True
    ).stdout.removesuffix("\n")
    image.write("rc", RC.format(workdir="/workspace", entrypoint="'/e'", command=quoted))
    assert resolved()["config"]["command"] == words


def test_an_image_without_entrypoint_has_a_command_alone(resolved, image):
    image.write("rc", RC.format(workdir="/", entrypoint="", command="'/bin/sh'"))
    config = resolved()["config"]
    assert (config["workdir"], config["entrypoint"], config["command"]) == ("/", [], ["/bin/sh"])


@pytest.mark.parametrize("script", ["#!/bin/sh\ncd /srv && exec httpd\n", "", None])
def test_files_of_the_same_names_that_enroot_did_not_write_say_nothing(resolved, image, script):
    if script is None:
        (image.root / "etc/rc").unlink()
    else:
        image.write("rc", script)
    config = resolved()["config"]
    assert (config["env"], config["workdir"], config["entrypoint"]) == ({}, None, [])


def test_explain_names_the_image_as_the_source(env, resolved):
    resolved()
    said = env("explain", "env.toml").out
    assert "workdir = /workspace\n    the image: /workspace\n" in said
    assert "env.LD_LIBRARY_PATH = /usr/local/cuda/lib64\n    the image" in said
    assert "image.entrypoint = ['/opt/nvidia/start.sh']" in said


def test_what_the_image_asks_for_and_is_not_done_is_named_by_check(env, resolved, image):
    image.write("rc.local", LOCAL + "export SEEN=1\n")
    image.write("fstab", FSTAB + "${PWD} /mnt none x-create=dir,bind\n")
    resolved("writable = false\nentrypoint = true\n")
    texts = [each["text"] for each in env("check", "env.toml", "--json").json["findings"]]
    said = "\n".join(texts)
    assert "/etc/rc.local has commands" in said
    assert "a mount, which is not made: ${PWD} /mnt" in said
    assert "volume /data cannot be written to" in said
    assert "names no entrypoint" not in said


def test_where_nothing_can_look_into_the_image_check_says_so(env, image, tmp_path, monkeypatch):
    (tmp_path / "env.toml").write_text(f'image = "{image.pack()}"\n')
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = env("check", "env.toml", "--json").json["findings"]
    assert [each["next"] for each in findings if each["rule"] == "image-unknown"] == [
        "install unsquashfs (squashfs-tools)"
    ]


def test_a_link_out_of_a_root_folder_is_not_followed(resolved, image, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text((image.root / "etc/rc").read_text())
    (image.root / "etc/rc").unlink()
    (image.root / "etc/rc").symlink_to(outside)
    assert resolved(packed=False)["config"]["workdir"] is None


def test_a_command_runs_with_what_the_image_says(env, image, tmp_path, monkeypatch):
    root = image.root
    for name in ("usr", "bin", "lib", "lib64", "sbin"):
        (root / name).mkdir(exist_ok=True)
    (root / "start.sh").write_text('#!/bin/sh\necho "entered from $(pwd)"\nexec "$@"\n')
    (root / "start.sh").chmod(0o755)
    image.write("rc", RC.format(workdir="/workspace", entrypoint="'/start.sh'", command="'/bin/sh'"))
    mounts = json.dumps(
        [f"{path}:{path}:ro" for path in ("/usr", "/bin", "/lib", "/lib64", "/sbin") if os.path.isdir(path)]
    )
    (tmp_path / "env.toml").write_text(f'image = "{image.pack()}"\nentrypoint = true\nmounts = {mounts}\n')
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "cordee.faces.cli",
            "env",
            "run",
            "env.toml",
            "--",
            "/bin/sh",
            "-c",
            "echo $LD_LIBRARY_PATH",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
    )
    assert (done.returncode, done.stdout) == (0, "entered from /workspace\n/usr/local/cuda/lib64\n"), done.stderr
