"""Runs whose environment names an image: HTCondor is asked to begin them in it, and what it cannot do is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.backends.htcondor.description import IMAGE, description, program
from cordee.backends.htcondor.submitter import HTCondorSubmitter
from cordee.core.findings import Finding
from cordee.job.submit.prepare import Prepared, create_run, prepare
from cordee.runs.folder import RunFolder
from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import enter_argv
from cordee.testing.images import busybox_squashfs

Make = Callable[..., Prepared]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Prepare a run on a pool with the lines of an EDF."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("import cordee\ncordee.checkpointer()\n")
    (tmp_path / "pool.toml").write_text('scheduler = "htcondor"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))

    def call(edf: str, job: str = "") -> Prepared:
        (tmp_path / "job" / "env.toml").write_text(edf)
        text = f'name = "t"\nrun = "python train.py"\nenvironment = "env.toml"\n{job}'
        (tmp_path / "job" / "cordee.toml").write_text(text)
        return prepare(str(tmp_path / "job"), "pool", {}, tmp_path / "runs")

    return call


def submitted(prepared: Prepared) -> tuple[RunFolder, list[str]]:
    folder, plan = create_run(prepared), prepared.plan.document()
    HTCondorSubmitter._pack(folder, plan)
    return folder, description(folder, plan).splitlines()


def errors(prepared: Prepared) -> list[Finding]:
    return [finding for finding in prepared.findings if finding.severity == "error"]


@pytest.mark.parametrize(
    ("image", "named", "kept"),
    [
        ("ubuntu:24.04", "docker://docker.io/library/ubuntu:24.04", False),
        ("docker://nvcr.io/nvidia/x:1", "docker://nvcr.io/nvidia/x:1", False),
        ("osdf:///site/a.sif", "osdf:///site/a.sif", False),
        ("https://example.org/a.sif", "https://example.org/a.sif", False),
        ("/cvmfs/images/a.sif", "/cvmfs/images/a.sif", True),
    ],
)
def test_an_image_that_machines_get_themselves_is_named_as_it_is(
    make: Make, image: str, named: str, kept: bool
) -> None:
    prepared = make(f'image = "{image}"\nworkdir = "/opt"\n[env]\nA = "b"\n')
    assert errors(prepared) == []
    folder, lines = submitted(prepared)
    assert lines[lines.index("universe = container") + 1] == f"container_image = {named}"
    assert ("transfer_container = False" in lines) is kept
    assert not (folder.submit / IMAGE).exists()


@pytest.mark.parametrize("name", ["image.sqsh", "image.sif"])
def test_an_image_of_this_machine_travels_under_the_ending_that_htcondor_knows(
    make: Make, tmp_path: Path, name: str
) -> None:
    image = busybox_squashfs(tmp_path / name)
    prepared = make(f'image = "{image}"\n')
    assert errors(prepared) == []
    folder, lines = submitted(prepared)
    assert f"container_image = {folder.submit / IMAGE}" in lines
    assert (folder.submit / IMAGE).read_bytes() == image.read_bytes()
    (disk,) = (line for line in lines if line.startswith("request_disk"))
    assert int(disk.split()[-1].removesuffix("MB")) > 1024


def test_without_an_image_nothing_is_asked_for(make: Make) -> None:
    prepared = make('[env]\nA = "b"\n')
    assert errors(prepared) == []
    assert "universe = vanilla" in submitted(prepared)[1]


REFUSED = [
    ('mounts = ["/data:/data"]', "/data:/data", "[data]", 2),
    ('devices = ["nvidia.com/gpu=all"]', "nvidia.com/gpu=all", "[need]", 2),
    ("writable = true", "writable = true", "who can write", 2),
    ("entrypoint = true", "entrypoint = true", "`run`", 2),
    ('[annotations]\ncom.hooks.cxi.enabled = "true"', "com.hooks.cxi.enabled = true", "hooks", 3),
    ('[env]\nPATH = "${PATH}:/x"', "PATH = ", "extends the PATH of the image", 3),
]


@pytest.mark.parametrize(("line", "given", "words", "number"), REFUSED)
def test_what_machines_cannot_do_is_refused_with_its_line_and_what_to_do(
    make: Make, tmp_path: Path, line: str, given: str, words: str, number: int
) -> None:
    (found,) = errors(make(f'image = "ubuntu:24.04"\n{line}\n'))
    assert (found.file, found.line) == (str(tmp_path / "job" / "env.toml"), number)
    assert str(found.given).startswith(given)
    assert words in found.text
    assert found.allowed
    assert "[on.pool] environment" in (found.next or "")


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("https://example.org/a.tar", "file of Apptainer"),
        ("ada@registry.example#team/x:1", "not in the store"),
        ("./root", "does not travel"),
        ("./none.sif", "no such image file"),
    ],
)
def test_an_image_that_cannot_be_handed_on_is_refused_with_its_line(
    make: Make, tmp_path: Path, image: str, words: str
) -> None:
    (tmp_path / "job" / "root" / "bin").mkdir(parents=True)
    (found,) = errors(make(f'image = "{image}"\n'))
    assert words in found.text
    assert (found.file, found.line) == (str(tmp_path / "job" / "env.toml"), 1)


def test_an_image_with_a_recipe_is_built_before_it_travels(make: Make) -> None:
    (found,) = errors(make('image = "team/train"\n[build]\nfrom = "scratch"\n'))
    assert "cordee env build" in (found.next or "")


def test_an_engine_of_the_profile_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text('scheduler = "htcondor"\n[environment]\nengine = "podman"\n')
    (found,) = errors(make('image = "ubuntu:24.04"\n'))
    assert (found.given, found.rule) == ("podman", "not-honoured")


def test_python_is_the_images(make: Make, tmp_path: Path) -> None:
    (tmp_path / "pool.toml").write_text('scheduler = "htcondor"\npython = "/pool/python"\n')
    prepared = make('image = "ubuntu:24.04"\n')
    text = program(create_run(prepared), prepared.plan.document())
    assert "for python in python3 /usr/bin/python3 " in text
    assert "/pool/python" not in text


def test_commands_of_an_environment_that_is_entered_run_as_they_are(tmp_path: Path) -> None:
    engine, environment = find_engine("scheduler"), Environment("e")
    with subprocess.Popen(engine.hold(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        enter = json.loads(holder.stdout.readline())["enter"]
        argv = enter_argv(enter, ["sh", "-c", 'pwd; echo "$1"', "sh", "a b"], str(tmp_path))
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert holder.poll() is None
    assert said == f"{os.path.realpath(tmp_path)}\na b\n"
    assert holder.returncode == 0
