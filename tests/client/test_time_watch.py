"""The looks between two beats: begun and ended by the agent's word, and by nothing that fails."""

from __future__ import annotations

import sys
import threading
import types
from pathlib import Path

import pytest

from cordee.client import time_watch
from cordee.client.time_watch import TimeWatch
from cordee.wire.pulse import PulseReader, PulseWriter, TimeSums


class Watched:
    """A watch of this process, and the agent's end of its pulse."""

    def __init__(self, folder: Path) -> None:
        writer = PulseWriter(str(folder), "1", False)
        self.watch, self.agent = TimeWatch(writer, lambda: 7), PulseReader(writer.path)

    def looks(self, count: int) -> TimeSums:
        def look() -> None:
            for _ in range(count):
                assert self.watch.wanted()
                self.watch.look()

        looking = threading.Thread(target=look)
        looking.start()
        looking.join()
        return self.agent.read().times


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_nobody_looks_before_the_agent_wants_it_and_after_it_does_not_any_more(watched: Watched):
    assert not watched.watch.wanted()
    watched.agent.want(5)
    sums = watched.looks(9)
    assert (sums.window, watched.agent.read().optimizer_steps) == (5, 7)
    assert sums.looked_ns > 0
    watched.agent.want(0)
    assert not watched.watch.wanted()
    after = watched.agent.read().times
    assert after.window == 0
    assert after.looked_ns >= sums.looked_ns


def test_what_fails_ends_the_looking_and_raises_nothing(watched: Watched, monkeypatch: pytest.MonkeyPatch):
    watched.agent.want(1)
    watched.looks(2)

    def fail(*_: object) -> None:
        raise RuntimeError("no such thing here")

    monkeypatch.setattr(time_watch.MainThread, "look", fail)
    watched.watch.look()
    assert not watched.watch.wanted()
    watched.watch.beat(None)
    assert watched.agent.read().times.window == 0


def test_a_machine_that_tells_nothing_of_threads_is_not_looked_at(watched: Watched, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError("no such clock")

    monkeypatch.setattr(time_watch, "MainThread", fail)
    watched.agent.want(1)
    assert not watched.watch.wanted()


@pytest.mark.parametrize(("name", "used"), [("torch.cuda", True), ("torch.cuda", False), ("torch_xla", True)])
def test_a_device_in_use_is_seen(watched: Watched, monkeypatch: pytest.MonkeyPatch, name: str, used: bool):
    module = types.ModuleType(name)
    module.is_initialized = lambda: used  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    watched.watch.beat(None)
    assert watched.watch._on_device is used
