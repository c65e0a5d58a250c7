"""Trainings that wait: for workers that decode, for a loader that sleeps, for checkpoints. On a GPU or, without one, on the CPU."""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from cordee.machine.probes.common import Obstacle
from cordee.systems.score.validation.programs.steady import Steady

_IMAGE_BYTES = 2 << 20
_PASSES = 12
_ITEM_BYTES = 4 << 10
_BATCH = 32
_STEP_SIZE = {"gpu": 8192, "cpu": 256}
_SAVED_BYTES = {"gpu": 1 << 30, "cpu": 64 << 20}
_IN_MEMORY = ("tmpfs", "ramfs")


class Images:
    """A data set whose items take a CPU tens of milliseconds to decode, as JPEG files do; without end.

    What is compressed is half noise, so that inflating it is work.
    """

    def __init__(self) -> None:
        noise = os.urandom(_IMAGE_BYTES // 16)
        self._packed = zlib.compress(noise + bytes(_IMAGE_BYTES - 2 * len(noise)) + noise, 6)

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, at: int) -> Any:
        import torch

        for turn in range(_PASSES):
            pixels = zlib.decompress(self._packed)
            zlib.crc32(pixels, turn)
        return torch.frombuffer(bytearray(pixels[:_ITEM_BYTES]), dtype=torch.uint8)


class Sleeping:
    """A data set that answers after a pause, as remote storage does: no CPU, no disk, nothing that a counter sees."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, at: int) -> Any:
        import torch

        time.sleep(self._pause_s)
        return torch.zeros(_ITEM_BYTES, dtype=torch.uint8)


def decoding(torch: Any, steady: Steady, device: str = "gpu", step_s: float = 0.002) -> dict[str, float]:
    """Train on what one worker per CPU decodes; a step takes less time than its data."""
    workers = len(os.sched_getaffinity(0))
    return _train(torch, steady, device, Images(), workers, _BATCH, step_s, log_waits=False)


def sleeping(
    torch: Any, steady: Steady, device: str = "gpu", log_waits: bool = False, pause_s: float = 0.4, step_s: float = 0.04
) -> dict[str, float]:
    """Train on what one sleeping worker delivers; `log_waits` tells how long each step waited, with `cordee.log`."""
    return _train(torch, steady, device, Sleeping(pause_s), 1, 1, step_s, log_waits=log_waits)


def _train(
    torch: Any, steady: Steady, device: str, items: Any, workers: int, batch: int, step_s: float, *, log_waits: bool
) -> dict[str, float]:
    import cordee

    step = _step(torch, device, step_s)
    loader = torch.utils.data.DataLoader(items, batch_size=batch, num_workers=workers, prefetch_factor=2)
    batches: Iterator[Any] = iter(loader)
    for _ in range(2 * workers):  # the first ones come while workers start
        next(batches)
    waited_s, steps = 0.0, 0
    while steady.going:
        before = time.monotonic()
        next(batches)
        wait_s = time.monotonic() - before
        waited_s += wait_s
        step()
        steps += 1
        if log_waits:
            cordee.log(steps, data_wait_s=wait_s)
    return {"wait_ratio": waited_s / steady.elapsed_s, "steps_per_second": steps / steady.elapsed_s}


def _step(torch: Any, device: str, step_s: float) -> Callable[[], None]:
    """Return what computes for about `step_s` and waits for it without spinning."""
    size, where = _STEP_SIZE[device], "cuda" if device == "gpu" else "cpu"
    kind = torch.bfloat16 if device == "gpu" else torch.float32
    a = torch.randn(size, size, device=where, dtype=kind)
    out = torch.empty_like(a)
    done = torch.cuda.Event(blocking=True) if device == "gpu" else None

    def compute(times: int) -> None:
        for _ in range(times):
            torch.mm(a, a, out=out)
        if done is not None:
            done.record()
            done.synchronize()

    compute(3)
    before = time.monotonic()
    compute(5)
    times = max(1, round(step_s / ((time.monotonic() - before) / 5)))
    return lambda: compute(times)


def saving(torch: Any, steady: Steady, device: str = "gpu", folder: str = "") -> dict[str, float]:
    """Save a checkpoint over and over, and wait until each is on the disk.

    Raises:
        Obstacle: the folder is in memory, where a checkpoint is no writing that anything counts.
    """
    place = folder or tempfile.gettempdir()
    if file_system(place) in _IN_MEMORY:
        raise Obstacle(f"{place} is in memory: checkpoints need a disk; name a folder on one with -o", "absent")
    size = _SAVED_BYTES[device]
    state = {"weights": torch.rand(size // 4, device="cuda" if device == "gpu" else "cpu")}
    count = 0
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        path = os.path.join(scratch, "checkpoint.pt")
        while steady.going:
            with open(path, "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            count += 1
    return {"bytes_per_second": float(size) * count / steady.elapsed_s}


def file_system(folder: str) -> str:
    """Return the type of the file system that a folder is on, empty when it cannot be told."""
    best, kind = "", ""
    real = os.path.realpath(folder)
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                fields = line.split()
                if (
                    len(fields) > 2
                    and (real + "/").startswith(fields[1].rstrip("/") + "/")
                    and len(fields[1]) >= len(best)
                ):
                    best, kind = fields[1], fields[2]
    except OSError:
        return ""
    return kind
