"""Computes a x + y on every device and compares each element with the host's own: does computing work at all?"""

from __future__ import annotations

import ctypes
import glob
import os
from array import array
from typing import Any

from cordee.machine.probes import cuda_driver
from cordee.machine.probes.common import Obstacle, ProbeDevice, Say, gpus, import_torch, serve

_A = 3


def main() -> None:
    """Answer one request: `device` (gpu, cpu), `engine` (auto, torch, driver), `count` elements, `cuda_home` or null."""
    serve(run)


def run(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return `{count, libraries, lanes: [{device, uuid, model, wrong}]}`; `wrong` counts the elements that differ."""
    count = request["count"]
    libraries = _load_libraries(request["cuda_home"]) if request["cuda_home"] else []
    if request["device"] == "cpu":
        say({"begin": "CPU"})
        x, y = array("d", (i % 4093 for i in range(count))), array("d", (i % 8191 for i in range(count)))
        out = array("d", (_A * one + other for one, other in zip(x, y)))
        wrong = sum(value != _A * (i % 4093) + i % 8191 for i, value in enumerate(out))
        return {"count": count, "libraries": libraries, "lanes": [{**ProbeDevice().facts(), "wrong": wrong}]}
    return {"count": count, "libraries": libraries, "lanes": _on_gpus(request["engine"], count, say)}


def _on_gpus(engine: str, count: int, say: Say) -> list[dict[str, Any]]:
    """Compute with torch, or with the driver alone where there is no torch."""
    if engine == "driver":
        return cuda_driver.run(count, say)
    try:
        torch = import_torch()
    except Obstacle as no_torch:
        if engine == "torch" or no_torch.cause != "absent":
            raise
        try:
            return cuda_driver.run(count, say)
        except Obstacle as no_driver:
            if no_driver.cause != "absent":
                raise
            raise Obstacle(f"{no_driver}; {no_torch}", "absent") from None
    lanes = []
    for device in gpus(torch):
        say({"begin": device.label})
        lanes.append({**device.facts(), "wrong": wrong_elements(torch, device, count)})
    return lanes


def wrong_elements(torch: Any, device: ProbeDevice, count: int) -> int:
    """Return how many elements of a x + y the device gets wrong; all numbers are integers that float32 holds exactly."""
    index = torch.arange(count, dtype=torch.int64)
    x, y = (index % 4093).to(torch.float32), (index % 8191).to(torch.float32)
    out = torch.add(y.to(device.torch_name), x.to(device.torch_name), alpha=_A).to("cpu")
    return int((out.to(torch.int64) != _A * (index % 4093) + index % 8191).sum())


def _load_libraries(cuda_home: str) -> list[str]:
    """Load the toolkit's libraries as a program that is built with it would, and return their names.

    Raises:
        Obstacle: there are none, or one cannot be loaded.
    """
    folder = os.path.join(cuda_home, "lib64")
    names = sorted(glob.glob(os.path.join(folder, "libcudart.so*")) + glob.glob(os.path.join(folder, "libnvrtc.so*")))
    if not names:
        raise Obstacle(f"{folder} holds neither libcudart nor libnvrtc", "absent")
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError as error:
            raise Obstacle(f"{name} cannot be loaded: {error}", "error") from None
    return [os.path.basename(name) for name in names]
