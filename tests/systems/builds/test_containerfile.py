"""What a Containerfile begins with is locked by digest; building one is tried in `test_distribution.py`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cordee.systems.builds.containerfile import base_images, with_locked_bases
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.lock import BuildPackage

from .conftest import Kitchen

DIGEST = "sha256:" + 64 * "a"
TEXT = """# FROM not:this
ARG TAG=12 NAME="site/${TAG}"
FROM --platform=linux/amd64 registry.site:5000/team/base:1.2 AS tools
RUN echo FROM nothing
from debian@sha256:old
FROM tools as again
FROM scratch
ARG TAG=13
FROM debian:${TAG} as $TAG
FROM ${WHO:-$NAME}:1
FROM registry.site:5000/team/base:1.2
"""


def test_base_images_are_those_of_no_stage_with_arguments_put_in():
    images = ["registry.site:5000/team/base:1.2", "debian@sha256:old", "debian:12", "site/12:1"]
    assert base_images(TEXT) == images


def test_an_argument_without_a_value_is_named():
    with pytest.raises(BuildError, match="no value: TAG") as error:
        base_images("ARG TAG\nFROM debian:${TAG}\n")
    assert "ARG TAG=VALUE" in str(error.value.allowed)


def test_an_instruction_of_several_lines_is_one():
    text = """FROM --platform=linux/amd64 \\
    # which one

    debian:12 AS tools
RUN select \\
FROM table
COPY <<EOF <<-"END" /opt/
FROM here
EOF
FROM there
\tEND
RUN cat <<< FROM && echo $((1<<FROM))
FROM scratch
"""
    assert base_images(text) == ["debian:12"]
    changed = with_locked_bases(text, [BuildPackage("image", "debian:12", "12", DIGEST, "image", 0)], Path())
    assert changed.splitlines()[0] == f"FROM --platform=linux/amd64 debian@{DIGEST} AS tools"
    assert changed.splitlines()[1:] == text.splitlines()[4:]


def test_their_names_become_digests_and_all_else_stays():
    bases = [BuildPackage("image", name, "x", DIGEST, "image", 0) for name in base_images(TEXT)]
    changed = [
        (old, new)
        for old, new in zip(TEXT.splitlines(), with_locked_bases(TEXT, bases, Path()).splitlines(), strict=True)
        if old != new
    ]
    assert changed == [
        (
            "FROM --platform=linux/amd64 registry.site:5000/team/base:1.2 AS tools",
            f"FROM --platform=linux/amd64 registry.site:5000/team/base@{DIGEST} AS tools",
        ),
        ("from debian@sha256:old", f"from debian@{DIGEST}"),
        ("FROM debian:${TAG} as $TAG", f"FROM debian@{DIGEST} AS $TAG"),
        ("FROM ${WHO:-$NAME}:1", f"FROM site/12@{DIGEST}"),
        ("FROM registry.site:5000/team/base:1.2", f"FROM registry.site:5000/team/base@{DIGEST}"),
    ]


@pytest.mark.usefixtures("real")
def test_a_base_on_this_machine_is_locked_and_another_in_its_place_is_refused(kitchen: Kitchen):
    made = kitchen.build("--oci", "layout")
    (kitchen.folder / "Containerfile").write_text(f"FROM oci:{kitchen.folder}/layout\nRUN true\n")
    kitchen.write('image = "filed"\n[build]\ncontainerfile = "Containerfile"\n')
    refused = kitchen.build("--locked", code=1)["error"]
    assert refused["text"] == "the lock is older than the Containerfile"
    locked = kitchen.call("lock", "env.toml", "--json")
    assert [each["hash"] for each in json.loads(locked.stdout)["packages"]] == [made["digest"]], locked.stderr
    (kitchen.folder / "one.txt").write_text("changed")
    text = (kitchen.folder / "env.lock.json").read_text()
    kitchen.write(f'image = "made"\n[build]\nfrom = "{kitchen.folder}/layout-before"\ncopy = ["one.txt:/etc/"]\n')
    shutil.move(kitchen.folder / "layout", kitchen.folder / "layout-before")
    kitchen.build("--oci", "layout")
    kitchen.write('image = "filed"\n[build]\ncontainerfile = "Containerfile"\n')
    (kitchen.folder / "env.lock.json").write_text(text)
    error = kitchen.build("--locked", code=1)["error"]
    assert "the base image is another one than was locked" in error["text"]
    assert error["allowed"] == made["digest"]


@pytest.mark.usefixtures("real")
def test_an_image_of_a_containerfile_is_made_again_and_goes_through_stages(kitchen: Kitchen):
    (kitchen.folder / "clusters").mkdir()
    (kitchen.folder / "clusters/local.toml").write_text(f'[environment.stages.test]\nstore = "{kitchen.folder}/test"\n')
    kitchen.build("--oci", "layout")
    (kitchen.folder / ".dockerignore").write_text("layout\nfiles\ncache\nstore\nhome\n")
    (kitchen.folder / "Containerfile").write_text("FROM oci:layout\nCOPY . /context\n")
    kitchen.write('image = "filed"\n[build]\ncontainerfile = "Containerfile"\n')
    made = kitchen.build()
    listed = kitchen.call("run", "env.toml", "--", "ls", "-A", "/context").stdout.split()
    assert "one.txt" in listed
    assert not {"env.lock.json", "env.cdx.json", "files"} & set(listed)
    kitchen.folder = kitchen.folder.parent
    again = kitchen.call("build", str(Path(made["lock"]).with_name("env.toml")), "--locked", "--json")
    assert json.loads(again.stdout)["digest"] == made["digest"], again.stderr
    listed = subprocess.run(["buildah", "images", "--json"], capture_output=True, text=True, check=True).stdout
    assert "localhost/cordee-" not in listed
    promoted = kitchen.call("promote", str(Path(made["lock"]).with_name("env.toml")), "test")
    assert promoted.returncode == 0, promoted.stderr


@pytest.mark.usefixtures("real")
def test_what_is_to_be_tried_by_hand_names_files_that_are_there(kitchen: Kitchen):
    kitchen.build("--oci", "layout")
    (kitchen.folder / "Containerfile").write_text("FROM oci:layout\nRUN false\n")
    kitchen.write('image = "filed"\n[build]\ncontainerfile = "Containerfile"\n')
    error = kitchen.build(code=1)["error"]
    assert error["next"].endswith(f"build -f {kitchen.folder}/Containerfile {kitchen.folder}")


@pytest.mark.parametrize("text", ["FROM oci:/nowhere\n", "FROM 'a b'\nFROM oci:/nowhere\n"])
def test_a_base_that_is_not_there_is_named(kitchen: Kitchen, text: str):
    (kitchen.folder / "Containerfile").write_text(text)
    kitchen.write('image = "filed"\n[build]\ncontainerfile = "Containerfile"\n')
    done = kitchen.call("lock", "env.toml")
    assert done.returncode == 1
    assert "the base image oci:/nowhere cannot be looked up" in done.stderr
