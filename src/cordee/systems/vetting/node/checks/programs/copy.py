"""Moves memory between the host and each GPU, through pinned memory, one GPU after another."""

from __future__ import annotations

from typing import Any

from cordee.machine.probes.common import ProbeDevice, ProbeLane, Say, gpus, import_torch, measure, serve


def main() -> None:
    """Answer one request: `device` (gpu, cpu), `size_bytes`, `seconds` for each GPU."""
    serve(run)


def run(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return `{size_bytes, lanes: [{device, uuid, model, to_device, to_host, windows, wrong}]}`, medians in bytes/s.

    On the CPU the same is done between two places of its own memory.
    """
    torch = import_torch()
    on_gpu = request["device"] == "gpu"
    lanes = []
    for device in gpus(torch) if on_gpu else [ProbeDevice()]:
        say({"begin": device.label})
        lanes.append(_both_ways(torch, device, request["size_bytes"], request["seconds"]))
    return {"size_bytes": request["size_bytes"], "lanes": lanes}


def _both_ways(torch: Any, device: ProbeDevice, size: int, seconds: float) -> dict[str, Any]:
    source = (torch.arange(size, dtype=torch.int64) % 251).to(torch.uint8)
    back = torch.empty_like(source)
    if device.is_gpu:
        source, back = source.pin_memory(), back.pin_memory()
    there = torch.empty(size, dtype=torch.uint8, device=device.torch_name)
    to_device = ProbeLane(device, lambda: there.copy_(source, non_blocking=True), torch)
    to_host = ProbeLane(device, lambda: back.copy_(there, non_blocking=True), torch)
    measure([to_device], seconds / 2)
    measure([to_host], seconds / 2)
    down, up = to_device.rates(float(size)), to_host.rates(float(size))
    wrong = int((back != source).sum())
    windows = down["windows"] + up["windows"]
    return {**device.facts(), "to_device": down["median"], "to_host": up["median"], "windows": windows, "wrong": wrong}
