"""Looks, four times a second and as long as the agent wants it, at what the main thread does with its time."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Optional, Sequence

from cordee.client.device_steps import StepShares
from cordee.client.main_thread import Glance, MainThread, major_faults
from cordee.client.observe import device_steps
from cordee.client.steps import Mark, marks
from cordee.client.time_account import PERIOD_NS, TimeAccount
from cordee.client.timer import Timer
from cordee.wire.pulse import PulseWriter

# So many looks are taken into the account together: what it costs is code that other work has pushed out of the caches.
_SHOWN_EVERY = 4
_HOLDS_S = 30.0
_GOLDEN = 0.6180339887498949
_DEVICES = ("torch.cuda", "torch.xpu", "torch_npu.npu", "habana_frameworks.torch.hpu")
_ALWAYS_DEVICES = ("torch_xla",)


class TimeWatch:
    """What the pulse's thread does between two beats. It never raises: what fails ends the looking, and nothing else.

    Args:
        pulse: where sums are shown, and the agent says what it wants.
        optimizer_steps: returns how many there were.
    """

    def __init__(self, pulse: PulseWriter, optimizer_steps: Callable[[], int]) -> None:
        self._pulse, self._optimizer_steps = pulse, optimizer_steps
        self._account = TimeAccount()
        self._timer = Timer()
        self._main: Optional[MainThread] = None
        self._window = 0
        self._phase = 0.0
        self._glances: list[tuple[Glance, Sequence[Mark]]] = []
        self._device: Optional[StepShares] = None
        self._measured_at = 0.0
        self._failed = False
        self._on_device = self._grouped = False

    def wanted(self) -> bool:
        """Do what the agent wants now; return whether it wants looks."""
        try:
            return self._follow()
        except Exception:  # whatever it is: the pulse goes on without it
            self._failed = True
            return False

    def look(self) -> None:
        """Sleep until the next look is due, and take it."""
        self._phase = (self._phase + _GOLDEN) % 1.0
        due_ns = time.monotonic_ns() + int(PERIOD_NS * (0.5 + self._phase))
        try:
            self._look(self._timer.sleep_until(due_ns))
        except Exception:
            self._failed = True

    def _follow(self) -> bool:
        window = 0 if self._failed else self._pulse.wanted
        if window == self._window:
            return window != 0
        self._window = window
        self._settle()
        self._account.open_window()
        if not window:
            self._account.pause()
            if self._main is not None:
                self._main.close()
                self._main = None
            self._show()
        elif self._main is None:
            self._main = MainThread()
        return window != 0

    def _look(self, late_ns: int) -> None:
        if not self._follow():
            return
        assert self._main is not None
        glance = self._main.look(late_ns, self._grouped, self._on_device, marks.part)
        self._glances.append((glance, marks.taken()))
        if len(self._glances) >= _SHOWN_EVERY:
            self._settle()
            self._show()

    def _settle(self) -> None:
        """Take the looks into the account that are not yet in it."""
        for glance, seen in self._glances:
            self._account.take(glance, seen, self._device if self._on_device else None)
        self._glances.clear()

    def _show(self) -> None:
        self._pulse.spent(self._account.sums(self._window, major_faults()), self._optimizer_steps())

    def beat(self, distributed: Any) -> None:
        """Take what changes seldom: whether there are others to wait for, and whether a device computes.

        Args:
            distributed: torch.distributed where a process group is there, else None.
        """
        try:
            self._grouped = distributed is not None and distributed.get_world_size() > 1
            always = any(name in sys.modules for name in _ALWAYS_DEVICES)
            self._on_device = always or any(_is_used(name) for name in _DEVICES)
            self._measure()
        except Exception:
            self._failed = True

    def _measure(self) -> None:
        """Take how the device spent its last step; what is old says nothing of now."""
        steps = device_steps()
        measured = steps.taken() if steps is not None else None
        if measured is not None:
            self._device, self._measured_at = measured, time.monotonic()
        elif time.monotonic() - self._measured_at > _HOLDS_S:
            self._device = None


def _is_used(name: str) -> bool:
    """Return whether a device of this kind is in use in this process."""
    module = sys.modules.get(name)
    is_initialized = getattr(module, "is_initialized", None)
    return bool(is_initialized()) if callable(is_initialized) else False
