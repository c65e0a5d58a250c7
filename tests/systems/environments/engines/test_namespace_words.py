"""The words of the namespace engine, compared with what was expected; nothing is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EngineLaunch
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.request import ContainerRequest, request_of

GOLDEN = Path(__file__).parent / "golden"
ENVIRONMENTS = {
    "host": Environment("host", mounts=(ContainerMount("/scratch", "/scratch"),), root=ContainerRoot("host")),
    "folder": Environment(
        "folder",
        "/images/root",
        workdir="/work place",
        entrypoint=True,
        mounts=(ContainerMount("/data", "/data", ("ro", "private")), ContainerMount("/venv.sqsh", "/venv", ("sqsh",))),
        devices=("nvidia.com/gpu=all", "/dev/fuse"),
        env={"TOKEN": "not to be seen"},
        root=ContainerRoot("folder", "/images/root"),
        config=ImageConfig(entrypoint=("/entry.sh",), command=("serve",), workdir="/srv"),
    ),
    "squashfs": Environment(
        "squashfs",
        "/images/root.sqsh",
        writable=False,
        root=ContainerRoot("squashfs", "/images/root.sqsh"),
        config=ImageConfig(workdir="/srv"),
    ),
}


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_an_environment_becomes_the_words_that_were_expected(name):
    engine, found = find_engine("namespace"), ENVIRONMENTS[name]
    lines = []
    for words in (engine.argv(found, EngineLaunch(("python", "-c", "print('a b')"), {"A": "b"})), engine.hold(found)):
        assert words[:4] == [sys.executable, "-I", "-S", "-c"]
        lines.append("\n".join(words[6:]))
    assert "\n\n".join(lines) + "\n" == (GOLDEN / f"namespace-{name}.txt").read_text()


def test_words_are_read_as_they_were_written():
    request = ContainerRequest("folder", "/a b", writable=False)
    request.mounts = [("/x", "/y", ("ro", "private")), ("/--", "--", ())]
    request.devices = ["/dev/fuse"]
    request.workdir = "--"
    request.argv = ["--", "--root"]
    again = request_of(request.words())
    assert all(getattr(again, name) == getattr(request, name) for name in ContainerRequest.__slots__)


@pytest.mark.parametrize("words", [["--root", "folder"], ["--nonsense"], ["--mount", "a", "b"]])
def test_words_that_are_not_known_or_too_few_are_refused(words):
    with pytest.raises(EngineRefused):
        request_of(words)
