"""Environments as options of srun."""

from __future__ import annotations

import pytest

from cordee.systems.environments.node.document import ContainerMount, Environment
from cordee.systems.environments.node.engines._base import EngineError
from cordee.systems.environments.step_options import step_options

EDF_OPTION = "--environment={file}"
PYXIS_OPTIONS = (
    "--container-image={image} --container-mounts={mounts} --container-workdir={workdir} --{writable} --{entrypoint}"
)
UENV_OPTION = "--uenv={image}"
IMAGE = Environment("e", "nvcr.io#nvidia/pytorch:24.01-py3")
FULL = Environment(
    "e",
    "/images/a b.sqsh",
    workdir="/work",
    entrypoint=True,
    writable=False,
    mounts=(ContainerMount("/capstor", "/capstor"), ContainerMount("/data", "/in", ("ro", "private"))),
    env={"TOKEN": "secret", "LEVEL": "3"},
)


def test_a_site_that_reads_edfs_is_given_the_file():
    whole = Environment("e", "x", devices=("nvidia.com/gpu=all",), annotations={"com.hooks.cxi.enabled": "true"})
    assert step_options(EDF_OPTION, whole, "/home/me/my env.toml") == ["--environment=/home/me/my env.toml"]


def test_pyxis_is_told_in_its_own_words_and_no_value_is_shown():
    assert step_options(PYXIS_OPTIONS, FULL) == [
        "--container-image=/images/a b.sqsh",
        "--container-mounts=/capstor:/capstor,/data:/in:ro+private",
        "--container-workdir=/work",
        "--container-readonly",
        "--container-entrypoint",
    ]
    assert step_options(PYXIS_OPTIONS, IMAGE) == [
        "--container-image=nvcr.io#nvidia/pytorch:24.01-py3",
        "--container-writable",
        "--no-container-entrypoint",
    ]


def test_an_option_of_several_words_is_split_as_a_shell_would():
    assert step_options("--uenv={image} --view 'my view'", Environment("e", "prgenv:v1")) == [
        "--uenv=prgenv:v1",
        "--view",
        "my view",
    ]


def test_what_an_option_cannot_say_is_named():
    with pytest.raises(EngineError) as caught:
        step_options(UENV_OPTION, FULL)
    assert all(word in caught.value.text for word in ("mounts", "workdir", "writable", "entrypoint"))
    with pytest.raises(EngineError, match="to be unset"):
        step_options(PYXIS_OPTIONS, Environment("e", "x", env={"HOME": ""}))
    with pytest.raises(EngineError, match="devices, annotations"):
        step_options(PYXIS_OPTIONS, Environment("e", "x", devices=("/dev/fuse",), annotations={"a": "b"}))


@pytest.mark.parametrize("mount", [ContainerMount("/a.sqsh", "/b", ("sqsh",)), ContainerMount("/a,b", "/c")])
def test_a_mount_that_an_option_cannot_say_is_named(mount):
    with pytest.raises(EngineError) as caught:
        step_options(PYXIS_OPTIONS, Environment("e", "x", mounts=(mount,)))
    assert mount.source in caught.value.given


def test_a_place_that_is_not_known_is_named():
    with pytest.raises(EngineError) as caught:
        step_options("--image={picture}", IMAGE)
    assert caught.value.given == "picture"
    assert "image" in caught.value.allowed
