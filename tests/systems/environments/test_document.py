"""The canonical document of an environment."""

from __future__ import annotations

import json

import pytest

from cordee.systems.environments.node.document import (
    ContainerMount,
    ContainerRoot,
    Environment,
    ImageConfig,
    environment_of,
)

FULL = Environment(
    name="full",
    image="/images/py.sqsh",
    workdir="/work",
    entrypoint=True,
    writable=False,
    mounts=(ContainerMount("/data", "/mnt/data", ("ro", "private")), ContainerMount("/venv.sqsh", "/venv", ("sqsh",))),
    devices=("nvidia.com/gpu=all",),
    env={"A": "edf", "GONE": ""},
    annotations={"com.hooks.ssh.enabled": "true"},
    root=ContainerRoot("squashfs", "/images/py.sqsh"),
    config=ImageConfig(
        {"A": "image", "B": "image", "GONE": "image"}, ("/entry",), ("sh",), "/srv", "amd64", "sha256:0"
    ),
)


@pytest.mark.parametrize("environment", [FULL, Environment(name="least")])
def test_a_document_comes_back_from_json_as_it_was(environment: Environment) -> None:
    assert environment_of(json.loads(json.dumps(environment.document()))) == environment


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="not cordee"):
        environment_of({"schema": "cordee.environment/2"})


def test_the_edf_goes_before_the_image_and_the_image_before_the_host() -> None:
    host = {"A": "host", "B": "host", "C": "host", "GONE": "host"}
    assert FULL.variables(host) == {"A": "edf", "B": "image", "C": "host"}


def test_a_command_begins_where_the_edf_says_else_the_image() -> None:
    assert FULL.begins_in() == "/work"
    assert Environment(name="e", config=ImageConfig(workdir="/srv")).begins_in() == "/srv"
    assert Environment(name="e").begins_in("/here") == "/here"


def test_the_entrypoint_gets_the_command_and_no_command_is_the_images_own() -> None:
    assert FULL.command(("python", "-V")) == ("/entry", "python", "-V")
    assert FULL.command(()) == ("/entry", "sh")
    assert Environment(name="e", config=FULL.config).command(("true",)) == ("true",)
