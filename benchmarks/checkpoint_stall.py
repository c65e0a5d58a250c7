"""What a checkpoint costs a training: cordee.checkpointer with and without `asynchronous`, and PyTorch's own asynchronous saves.

    python benchmarks/checkpoint_stall.py --gib 1 --saves 3 --rounds 2

One process trains a matrix product whose steps take about the same; every method runs in a process of its own, one after the other, in
turns, `--rounds` times, with the same steps and the same interval. For each: the stall of each `save` beside a copy of the same bytes into
touched memory just before it (by the clock, and in CPU seconds of the training's thread, which others' work does not lengthen), steps
while a save is written against steps when none is (mean and p99), seconds lost for each save (stall and slower steps together), and whether what was saved is what was there:
all tensors are overwritten right after `save`.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

METHODS = ("none", "cordee", "cordee-async", "cordee-unpaced", "dcp", "dcp-thread", "dcp-process")


def train(method: str, gib: float, saves: int, interval_s: float, folder: Path, each: int) -> dict:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    import cordee

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model = torch.nn.Module()
    count = round(gib * (1 << 30) / each)
    for number in range(count):
        model.register_parameter(f"p{number}", torch.nn.Parameter(torch.zeros(each // 4), requires_grad=False))
    if method == "dcp-process":
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    copy = [torch.zeros_like(parameter) for parameter in model.parameters()]
    copies: list[tuple[float, float]] = []

    def timed(action) -> tuple[float, float]:
        began, cpu = time.perf_counter(), time.thread_time()
        action()
        return time.perf_counter() - began, time.thread_time() - cpu

    def copy_all() -> None:
        for target, parameter in zip(copy, model.parameters(), strict=True):
            target.copy_(parameter)

    copy_all()
    pace = "off" if method == "cordee-unpaced" else "auto"
    beside = method in ("cordee-async", "cordee-unpaced")
    saver = cordee.checkpointer(model, folder=folder, every_s=interval_s, asynchronous=beside, pace=pace, keep=1)
    future = None
    square = torch.randn(384, 384)
    stalls, written, steps, marks = [], [], [], []
    landed: float | None = None
    saved_at = 0.0

    def under_way() -> bool:
        if method.startswith("cordee"):
            return saver._background is not None and saver._background.flight is not None and not done()
        return future is not None and not future.done()

    def done() -> bool:
        return (folder / f"step-{marks[-1]:09d}").exists() if marks else True

    def save(step: int) -> None:
        nonlocal future
        if method.startswith("cordee"):
            saver.save(step)
        elif method == "dcp":
            dcp.save({"model": model.state_dict()}, checkpoint_id=folder / f"step-{step:09d}")
        elif method != "none":
            if future is not None:
                future.result()
            kind = AsyncCheckpointerType.THREAD if method == "dcp-thread" else AsyncCheckpointerType.PROCESS
            future = dcp.async_save(
                {"model": model.state_dict()}, checkpoint_id=folder / f"step-{step:09d}", async_checkpointer_type=kind
            )

    began = last = time.perf_counter()
    next_save, step = began + interval_s / 2, 0
    while len(stalls) < saves or time.perf_counter() < next_save:
        for _ in range(4):
            square = torch.tanh(square @ square)
        saver.due(step)
        now = time.perf_counter()
        steps.append((now - last, under_way()))
        if landed is None and marks and not under_way() and method != "none":
            landed = now - saved_at
            written.append(landed)
        last = now
        if now >= next_save and len(stalls) < saves:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(float(step))
            copies.append(timed(copy_all))
            marks.append(step)
            landed = None
            saved_at = time.perf_counter()
            stalls.append(timed(functools.partial(save, step)))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(-1.0)
            next_save, last = saved_at + interval_s, time.perf_counter()
        step += 1
    if future is not None:
        future.result()
    saver.wait()
    quiet = [seconds for seconds, beside in steps if not beside]
    busy = [seconds for seconds, beside in steps if beside]
    usual, mean = statistics.median(quiet), statistics.fmean(quiet)
    whole = None
    if method != "none":
        state = {"model": {name: torch.empty_like(value) for name, value in model.state_dict().items()}}
        newest = sorted(folder.glob("step-*"))[-1]
        dcp.load(state, checkpoint_id=newest)
        whole = all(bool((value == float(marks[-1])).all()) for value in state["model"].values())
    return {
        "method": method,
        "copies_s": [seconds for seconds, _ in copies],
        "stalls_s": [seconds for seconds, _ in stalls],
        "ratios": [stall / copied for (stall, _), (copied, _) in zip(stalls, copies, strict=True)],
        "cpu_ratios": [stall / copied for (_, stall), (_, copied) in zip(stalls, copies, strict=True)],
        "written_s": written,
        "step_s": usual,
        "busy_steps": len(busy),
        "dip": 1 - mean * len(busy) / sum(busy) if busy else 0.0,
        "p99_quiet": quantile(quiet, 0.99) / usual,
        "p99_busy": quantile(busy, 0.99) / usual if busy else None,
        "lost_s": (sum(seconds for seconds, _ in stalls) + sum(busy) - mean * len(busy)) / saves
        if method != "none"
        else 0.0,
        "whole": whole,
    }


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--interval", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tensor-kib", type=int, default=16 << 10, help="size of each tensor")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(
            json.dumps(
                train(given.one, given.gib, given.saves, given.interval, Path(given.folder), given.tensor_kib << 10)
            )
        )
        return
    for method in [*given.methods] * given.rounds:
        folder = Path(tempfile.mkdtemp(prefix="checkpoint-stall-", dir=given.folder))
        try:
            command = [sys.executable, __file__, "--one", method, "--folder", str(folder)]
            command += ["--gib", str(given.gib), "--saves", str(given.saves), "--interval", str(given.interval)]
            command += ["--tensor-kib", str(given.tensor_kib)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            print(done.stdout.strip() or done.stderr[-2000:], flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
