"""What all programs share: how they are asked and answer, the devices of torch, and timing in windows."""

from __future__ import annotations

import faulthandler
import json
import math
import os
import re
import signal
import sys
import time
from typing import Any, Callable, Optional

from cordee.machine.processes.parent import die_with_parent

_WINDOW_S, _GPU_WINDOW_S = 0.02, 0.1
_MIN_WINDOWS = 3
_WARM_UP_STEPS = 3
# How torch words what the driver reports of a device: "CUDA error: uncorrectable ECC error encountered" and the like.
_DEVICE_ERROR = re.compile(r"\b(CUDA|HIP|NCCL|cuBLAS|CUBLAS) error\b")

Say = Callable[[dict[str, Any]], None]


class Obstacle(Exception):
    """The program cannot do what it is asked for; `cause` is one of `cordee.systems.vetting.node.checks._base.CAUSES`."""

    def __init__(self, text: str, cause: str) -> None:
        super().__init__(text)
        self.cause = cause


def serve(program: Callable[[dict[str, Any], Say], dict[str, Any]]) -> None:
    """Answer the request on standard input with JSON lines on standard output; whatever libraries print goes to stderr.

    The last line is `{"done": ...}`, `{"cannot": text, "cause": ...}` or, when a device gave an error, `{"broken": text}`. At
    SIGUSR2 the stacks of all threads go to stderr.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    die_with_parent()
    faulthandler.register(signal.SIGUSR2, all_threads=True)

    def say(document: dict[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    try:
        say({"done": program(json.load(sys.stdin), say)})
    except Obstacle as obstacle:
        say({"cannot": str(obstacle), "cause": obstacle.cause})
    except RuntimeError as error:
        if not _DEVICE_ERROR.search(str(error)):
            raise
        say({"broken": str(error).strip().splitlines()[0]})
    sys.stderr.flush()
    os._exit(0)  # libraries that tear a broken device down may hang


def import_torch() -> Any:
    """Return torch.

    Raises:
        Obstacle: it cannot be imported by this interpreter.
    """
    try:
        import torch
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        cause = "absent" if isinstance(error, ModuleNotFoundError) else "error"
        text = (
            f"torch cannot be imported by {sys.executable}: {words}; `cordee vet prepare` makes an interpreter with it"
        )
        raise Obstacle(text, cause) from None
    return torch


class ProbeDevice:
    """A GPU of torch (CUDA or ROCm), or the CPU when `index` is None."""

    def __init__(self, index: Optional[int] = None, uuid: Optional[str] = None, model: str = "CPU") -> None:
        self.index = index
        self.uuid = uuid
        self.model = model

    @property
    def is_gpu(self) -> bool:
        return self.index is not None

    @property
    def torch_name(self) -> str:
        """The device as torch spells it; ROCm's GPUs are `cuda` there too."""
        return f"cuda:{self.index}" if self.is_gpu else "cpu"

    @property
    def label(self) -> str:
        """The device for a person."""
        if not self.is_gpu:
            return self.model
        return f"GPU {self.index} ({self.uuid or self.model})"

    def facts(self) -> dict[str, Any]:
        """Return the keys that name the device in a result."""
        return {"device": self.index, "uuid": self.uuid, "model": self.model}


def gpus(torch: Any) -> list[ProbeDevice]:
    """Return all GPUs that torch sees.

    Raises:
        Obstacle: torch cannot use any; `unusable` in the cause's place tells a broken driver from a torch without CUDA.
    """
    build = torch.version.cuda or getattr(torch.version, "hip", None)
    if build is None:
        raise Obstacle(f"torch {torch.__version__} of {sys.executable} is built without CUDA and ROCm", "absent")
    kind = "CUDA" if torch.version.cuda else "ROCm"
    try:
        torch.cuda.init()
        count = torch.cuda.device_count()
    except Exception as error:
        raise Obstacle(f"{kind} {build} cannot use a GPU: {error}", "unusable") from None
    if count == 0:
        raise Obstacle(f"{kind} {build} sees no GPU", "unusable")
    return [_gpu(torch, index) for index in range(count)]


def _gpu(torch: Any, index: int) -> ProbeDevice:
    properties = torch.cuda.get_device_properties(index)
    uuid = getattr(properties, "uuid", None)
    return ProbeDevice(index, None if uuid is None else f"GPU-{uuid}", properties.name)


class ProbeLane:
    """One device doing the same step over and over; times are taken by the device's own clock where it has one.

    Args:
        device: where.
        step: starts one step; on a GPU it returns before the step has ended.
        torch: for the events of a GPU; not needed on the CPU.
    """

    def __init__(self, device: ProbeDevice, step: Callable[[], Any], torch: Any = None) -> None:
        self.device = device
        self.count = 1
        self.times_s: list[float] = []
        self._step = step
        self._torch = torch
        self._started = 0.0
        self._elapsed = 0.0
        if device.is_gpu:
            with torch.cuda.device(device.index):
                self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def launch(self) -> None:
        """Start one window of `count` steps."""
        if not self.device.is_gpu:
            self._started = time.perf_counter()
            for _ in range(self.count):
                self._step()
            self._elapsed = time.perf_counter() - self._started
            return
        with self._torch.cuda.device(self.device.index):
            self._events[0].record()
            for _ in range(self.count):
                self._step()
            self._events[1].record()

    def finish(self) -> float:
        """Wait for the window to end; return the seconds of one step."""
        if self.device.is_gpu:
            self._events[1].synchronize()
            self._elapsed = self._events[0].elapsed_time(self._events[1]) / 1e3
        return self._elapsed / self.count

    def rates(self, work: float) -> dict[str, Any]:
        """Return what the windows say, in units of `work` per second."""
        times = sorted(self.times_s)
        middle = times[len(times) // 2]
        return {"median": work / middle, "best": work / times[0], "worst": work / times[-1], "windows": len(times)}


def measure(lanes: list[ProbeLane], seconds: float, after_window: Optional[Callable[[], None]] = None) -> None:
    """Run all lanes at once, in windows of 20 ms (100 ms on GPUs) or one step, for about `seconds`, and at least a few windows.

    Args:
        lanes: get their `times_s`.
        seconds: of measuring; warming up comes on top.
        after_window: is called after each.
    """
    window_s = _GPU_WINDOW_S if lanes[0].device.is_gpu else _WINDOW_S
    for lane in lanes:
        for _ in range(_WARM_UP_STEPS):
            lane.launch()
            once = lane.finish()
        lane.count = max(1, math.ceil(window_s / max(once, 1e-9)))
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(lanes[0].times_s) < _MIN_WINDOWS:
        for lane in lanes:
            lane.launch()
        for lane in lanes:
            lane.times_s.append(lane.finish())
        if after_window is not None:
            after_window()
