"""Moves memory within a device: triads on GPUs with torch, copies on the CPU with the C library alone."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cordee.machine.probes.common import Obstacle, ProbeDevice, ProbeLane, Say, gpus, import_torch, measure, serve

_GPU_BYTES = 1 << 30
_CPU_BYTES = 256 << 20
_LEAST_BYTES = 16 << 20
_MEMORY_SHARE = 0.2
_MOST_THREADS = 4


def main() -> None:
    """Answer one request: `device` (gpu, cpu), `engine` (torch, copy), `size_bytes` of one array or null, `seconds`."""
    serve(run)


def run(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return `{engine, size_bytes, threads, lanes: [{device, uuid, model, median, best, worst, windows, wrong}]}`, rates in bytes/s.

    A triad (a = b + 2 c) moves three arrays, a copy two; `wrong` counts elements that came out wrong.
    """
    return _triad(request, say) if request["engine"] == "torch" else _copy(request, say)


def _triad(request: dict[str, Any], say: Say) -> dict[str, Any]:
    torch = import_torch()
    on_gpu = request["device"] == "gpu"
    devices = gpus(torch) if on_gpu else [ProbeDevice()]
    size = request["size_bytes"] or (
        min(_gpu_bytes(torch, device) for device in devices) if on_gpu else _CPU_BYTES // 4
    )
    lanes, looks = [], []
    for device in devices:
        say({"begin": device.label})
        lane, wrong = _triad_lane(torch, device, size // 4)
        lanes.append(lane)
        looks.append(wrong)
    measure(lanes, request["seconds"])
    found = [
        {**lane.device.facts(), **lane.rates(3.0 * (size // 4 * 4)), "wrong": wrong()}
        for lane, wrong in zip(lanes, looks)
    ]
    return {"engine": "torch", "size_bytes": size, "threads": None, "lanes": found}


def _gpu_bytes(torch: Any, device: ProbeDevice) -> int:
    free, total = torch.cuda.mem_get_info(device.index)
    size = min(_GPU_BYTES, int(free * _MEMORY_SHARE))
    if size < _LEAST_BYTES:
        raise Obstacle(f"{device.label}: only {free} of {total} bytes of memory are free", "error")
    return size


def _triad_lane(torch: Any, device: ProbeDevice, count: int) -> tuple[ProbeLane, Any]:
    """Return the lane and what counts its wrong elements; the numbers are integers below 2^24, exact in float32."""
    where = device.torch_name
    b = torch.arange(count, dtype=torch.int64, device=where).remainder_(4093).to(torch.float32)
    c = torch.arange(count, dtype=torch.int64, device=where).remainder_(8191).to(torch.float32)
    a = torch.empty_like(b)

    def wrong() -> int:
        return int((a.sub_(b).sub_(c).sub_(c) != 0).sum())

    return ProbeLane(device, lambda: torch.add(b, c, alpha=2, out=a), torch), wrong


def _copy(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Copy with memcpy, whose calls do not hold Python's lock, on a few threads at once."""
    threads = max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0))))
    part = (request["size_bytes"] or _CPU_BYTES) // threads
    pattern = bytes(range(251)) * (part // 251 + 1)
    pairs = [
        (ctypes.create_string_buffer(part), ctypes.create_string_buffer(pattern[:part], part)) for _ in range(threads)
    ]
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.restype, memcpy.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    say({"begin": "CPU"})
    with ThreadPoolExecutor(threads) as pool:

        def step() -> None:
            list(pool.map(lambda pair: memcpy(*pair, part), pairs))

        lane = ProbeLane(ProbeDevice(), step)
        measure([lane], request["seconds"])
    wrong = sum(target.raw != source.raw for target, source in pairs)
    found = {**lane.device.facts(), **lane.rates(2.0 * part * threads), "wrong": wrong}
    return {"engine": "copy", "size_bytes": part * threads, "threads": threads, "lanes": [found]}
