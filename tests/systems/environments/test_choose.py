"""Which engine runs an environment."""

from __future__ import annotations

import sys

import pytest

from cordee.systems.environments.node import choose
from cordee.systems.environments.node.choose import choose_engine, said
from cordee.systems.environments.node.document import ContainerRoot, Environment
from cordee.systems.environments.node.engines import ENGINES
from cordee.systems.environments.node.engines._base import Engine, EngineError, MissingCapability

FOLDER = Environment("e", "/i", root=ContainerRoot("folder", "/"))


class Able(Engine):
    name = "able"

    def missing(self, environment):
        return []


class Unable(Engine):
    name = "unable"

    def missing(self, environment):
        return [
            MissingCapability("fuse", "/dev/fuse cannot be opened", "ask for it"),
            MissingCapability("tool", "tool is gone", "get it"),
        ]


@pytest.fixture(autouse=True)
def engines(monkeypatch):
    for name in list(ENGINES):
        monkeypatch.delitem(ENGINES, name)
    monkeypatch.setitem(ENGINES, "unable", f"{__name__}:Unable")
    monkeypatch.setitem(ENGINES, "able", f"{__name__}:Able")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(choose, "PREFERENCE", ("unable", "not-there", "able"))


def test_the_first_that_can_is_taken_and_the_others_say_why_not():
    choice = choose_engine(FOLDER)
    assert choice.engine.name == "able"
    assert said(choice.passed_over) == ["unable: /dev/fuse cannot be opened", "unable: tool is gone"]


def test_the_one_that_is_asked_for_is_taken_or_refused_but_never_replaced():
    assert choose_engine(FOLDER, "able").engine.name == "able"
    with pytest.raises(EngineError) as caught:
        choose_engine(FOLDER, "unable")
    assert "/dev/fuse cannot be opened" in caught.value.text
    assert "tool is gone" in caught.value.text
    assert "ask for it" in caught.value.next


def test_without_any_that_can_all_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(choose, "PREFERENCE", ("unable",))
    with pytest.raises(EngineError, match="no engine can run this environment here; unable: /dev/fuse"):
        choose_engine(FOLDER)


def test_an_engine_that_there_is_not_is_refused():
    with pytest.raises(EngineError) as caught:
        choose_engine(FOLDER, "docker")
    assert caught.value.given == "docker"


def test_a_site_whose_engine_is_an_option_of_srun_is_said_so():
    with pytest.raises(EngineError, match="option of srun") as caught:
        choose_engine(FOLDER, "step")
    assert "srun" in caught.value.next
