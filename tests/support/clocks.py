"""Clocks for the modules under test alone: what else runs in this process, such as a server in a thread, keeps its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest


def give_clock(monkeypatch: pytest.MonkeyPatch, package: str, **changed: Callable[..., Any]) -> None:
    """Replace functions of `time` in a module, and in all that are imported below it.

    What is replaced in `time` itself is replaced for every thread: a loop that was told of a time far ahead may sleep until then.

    Args:
        package: the full name of the package or module, which is imported already.
        changed: the functions, by their names in `time`.
    """
    clock = SimpleNamespace(**{**vars(time), **changed})
    found = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    using = [name for name in found if getattr(sys.modules[name], "time", None) is time]
    assert using, f"nothing in {package} uses `time`"
    for name in using:
        monkeypatch.setattr(sys.modules[name], "time", clock)
