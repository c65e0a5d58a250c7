"""The thread that shows where a rank goes on outlives what it meets in a script that is still importing."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from cordee.client import pulse


@pytest.fixture
def thread(tmp_path, monkeypatch):
    monkeypatch.setattr(pulse, "_EVERY_S", 0.001)
    monkeypatch.setattr(pulse._PulseThread, "_hear_signal", lambda self: None)
    return pulse._PulseThread(str(tmp_path))


@pytest.mark.parametrize("there", [(), ("is_available",)])
def test_torch_that_is_half_imported_has_no_process_group_yet(monkeypatch, there):
    half = ModuleType("torch.distributed")
    for name in there:
        setattr(half, name, lambda: True)
    monkeypatch.setitem(sys.modules, "torch.distributed", half)
    assert pulse._distributed() is None


def test_a_beat_that_fails_is_followed_by_another(thread, monkeypatch):
    beats = []

    def beat():
        beats.append(len(beats))
        if len(beats) < 3:
            raise AttributeError("partially initialized module")
        thread._over = True

    monkeypatch.setattr(thread, "_beat", beat)
    thread.run()
    assert beats == [0, 1, 2]


def test_a_pulse_that_can_never_beat_gives_up(thread, monkeypatch):
    beats = []

    def beat():
        beats.append(len(beats))
        raise AttributeError("another torch")

    monkeypatch.setattr(thread, "_beat", beat)
    with pytest.raises(AttributeError, match="another torch"):
        thread.run()
    assert len(beats) == 11
