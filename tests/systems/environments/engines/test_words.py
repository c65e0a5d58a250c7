"""What podman and Apptainer are told of an environment, compared with what was read and found right, without either of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EngineError, EngineLaunch
from cordee.systems.environments.node.engines.apptainer.argv import enter_words, exec_words, start_words, stop_words
from cordee.systems.environments.node.engines.podman.argv import podman_words
from cordee.systems.environments.node.engines.podman.engine import asked_for

GOLDEN = Path(__file__).parent / "golden"
PLAIN = Environment("plain", "/images/plain.sqsh", root=ContainerRoot("squashfs", "/images/plain.sqsh"))
FULL = Environment(
    "full",
    "/images/root",
    workdir="/home/me/dir",
    entrypoint=True,
    writable=False,
    mounts=(
        ContainerMount("/capstor/scratch", "/capstor/scratch"),
        ContainerMount("/store/my data", "/data", ("ro", "nosuid", "private")),
        ContainerMount("/store/set.sqsh", "/set", ("sqsh",)),
        ContainerMount("/home/me/file", "/etc/over"),
    ),
    devices=("/dev/fuse",),
    env={"TOKEN": "secret"},
    annotations={"com.hooks.cxi.enabled": "true", "com.hooks.aws_ofi_nccl.variant": "cuda12"},
    root=ContainerRoot("folder", "/images/root"),
    config=ImageConfig(entrypoint=("/entry", "--"), workdir="/opt"),
)
SIMPLE = Environment(
    "simple",
    "/images/root",
    mounts=(
        ContainerMount("/capstor", "/capstor"),
        ContainerMount("/store", "/data", ("ro",)),
        ContainerMount("/a.sqsh", "/set", ("sqsh",)),
    ),
    root=ContainerRoot("folder", "/images/root"),
)
TWICE = Environment(
    "twice",
    "/i",
    root=ContainerRoot("folder", "/i"),
    mounts=(ContainerMount("/a", "/x"), ContainerMount("/b", "/x/"), ContainerMount("/c", "/tmp")),
)


@pytest.fixture
def podman_on_path(tmp_path, monkeypatch):
    """Empty programs: nothing is started when words are made."""
    for name in ("podman", "runc"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("name", "environment", "held"),
    [
        ("podman-plain", PLAIN, False),
        ("podman-full", FULL, False),
        ("podman-full-held", FULL, True),
        ("podman-twice", TWICE, True),
    ],
)
def test_podman_is_told(name, environment, held, podman_on_path):
    asked = asked_for(environment)
    asked.place = "/run/cordee-podman-0"
    told = podman_words(asked, host_processes=held, host_ipc=True)
    words = [word.replace(podman_on_path, "/usr/bin") for word in told]
    assert words == (GOLDEN / f"{name}.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("apptainer-exec", lambda: exec_words(SIMPLE, ("python", "train.py"), "/home/me/dir")),
        ("apptainer-exec-gpus", lambda: exec_words(PLAIN, ("nvidia-smi",), "/", ("--nv",))),
        ("apptainer-start", lambda: start_words(SIMPLE, "cordee-1", ("--nv", "--rocm"))),
        ("apptainer-enter", lambda: enter_words("cordee-1", ["python", "train.py"], "/home/me/dir")),
        ("apptainer-stop", lambda: stop_words("cordee-1")),
    ],
)
def test_apptainer_is_told(name, words):
    assert words() == (GOLDEN / f"{name}.txt").read_text().splitlines()


@pytest.mark.parametrize("engine", ["podman", "apptainer"])
def test_the_command_goes_through_the_entrypoint_and_values_stay_off_the_command_line(engine):
    environment = Environment(
        "e", "/i", root=ContainerRoot("folder", "/i"), entrypoint=True, config=FULL.config, env=FULL.env
    )
    argv = find_engine(engine).argv(environment, EngineLaunch(("python", "train.py"), environment.variables({})))
    assert argv[-4:] == ["/entry", "--", "python", "train.py"]
    assert not any("secret" in word for word in [*argv, *find_engine(engine).hold(environment)])


@pytest.mark.parametrize("engine", ["podman", "apptainer"])
@pytest.mark.parametrize(
    ("fields", "given"),
    [
        ({"mounts": (ContainerMount("/a", "/b", ("sparkling",)),)}, "/a:/b:sparkling"),
        ({"mounts": (ContainerMount("/a:b", "/c"),)}, "/a:b:/c"),
        ({"root": ContainerRoot("host"), "image": ""}, None),
        ({"root": None}, "/i"),
        ({}, "/i"),
    ],
)
def test_what_an_engine_cannot_be_told_is_refused_by_name(engine, fields, given):
    environment = Environment(**{"name": "e", "image": "/i", "root": ContainerRoot("folder", "/i"), **fields})
    with pytest.raises(EngineError) as caught:
        find_engine(engine).argv(environment, EngineLaunch(("true",) if fields else (), {}))
    assert str(caught.value.given or "").startswith(given or "")
    assert caught.value.next


def test_a_device_that_apptainer_cannot_be_told_of_is_named():
    with pytest.raises(EngineError) as caught:
        exec_words(
            Environment("e", "/i", root=ContainerRoot("folder", "/i"), devices=("vendor.com/x=1",)), ("true",), "/"
        )
    assert caught.value.given == "vendor.com/x=1"


def test_an_engine_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(EngineError) as caught:
        find_engine("docker")
    assert {"namespace", "podman", "apptainer"} <= set(caught.value.allowed)
