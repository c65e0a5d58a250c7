"""What `cordee profile` costs a rank: `python benchmarks/rank_traces.py [--rounds N]`.

Outside the window: the hook at each step of an optimizer with and without the place for a trace, and the pulse's look whether somebody asks.
Inside: processor time of the main thread per step, in rounds that alternate between no trace and each kind of trace, in one process; the start,
the stop and the writing of a trace; its size. Processor time, as other work on the machine lengthens all others.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import tempfile
import threading
import time
import timeit
from pathlib import Path

import torch

from cordee.client.tracing import StepTracer
from cordee.wire.pulse import EXTRAS, TRACE, PulseReader, PulseWriter, TraceOrder

STEPS = 10
KINDS: dict[str, tuple[str, ...]] = {"plain": (), "shapes": ("shapes",), "stacks": ("stacks",), "memory": ("memory",)}


def small() -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a model whose operators are short, so that a trace costs the most."""
    return torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(24)]), torch.randn(8, 64)


def usual() -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a transformer of four layers, whose operators take longer."""
    layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, dropout=0.0)
    return torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(4, 64, 256)


class Training:
    """A model that makes steps, and a tracer that is told of them, as the hook does."""

    def __init__(self, model: torch.nn.Module, data: torch.Tensor) -> None:
        self._model, self._data = model, data
        self._optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        self._made = 0

    def step(self, tracer: StepTracer | None = None) -> None:
        self._optimizer.zero_grad()
        self._model(self._data).square().mean().backward()
        self._optimizer.step()
        self._made += 1
        if tracer is not None:
            tracer.step(self._optimizer, self._made)

    def bare(self) -> float:
        """Return the processor seconds of one step without a trace."""
        begin = time.thread_time()
        for _ in range(STEPS):
            self.step()
        return (time.thread_time() - begin) / STEPS

    def traced(self, kind: str, stem: str) -> tuple[float, float, float, float, int, int]:
        """Return processor seconds of a step, of start, of stop and of writing; bytes as torch writes them, and compressed."""
        extras = sum(EXTRAS[name] for name in KINDS[kind])
        tracer = StepTracer(TraceOrder(STEPS, 0, 0, 600_000, extras, 1), stem, 0, threading.Event())
        times = []
        for _ in range(STEPS + 1):
            begin = time.thread_time()
            self.step()
            stepped = time.thread_time()
            tracer.step(self._optimizer, self._made)
            times.append((stepped - begin, time.thread_time() - stepped))
        begin = time.thread_time()
        tracer.look(1, self._made)
        written = time.thread_time() - begin
        content = Path(stem + TRACE).read_bytes()
        os.unlink(stem + TRACE)
        return (
            statistics.fmean(step for step, _ in times[1:]),
            *(times[0][1], times[-1][1], written),
            *(len(content), len(gzip.compress(content, 6))),
        )


def outside(folder: str) -> None:
    """Print what is there always."""
    made, tracer_of_none = 0, None

    def counts(*_: object) -> None:
        nonlocal made
        made += 1

    def stepped(optimizer: object, *_: object) -> None:
        nonlocal made
        made += 1
        tracer = tracer_of_none
        if tracer is not None:
            raise AssertionError

    number = 1_000_000
    pairs = [
        (
            timeit.timeit(lambda: counts(1, (), {}), number=number),
            timeit.timeit(lambda: stepped(1, (), {}), number=number),
        )
        for _ in range(5)
    ]
    without, with_it = (min(column) / number * 1e9 for column in zip(*pairs, strict=True))
    writer = PulseWriter(folder, "1", False)
    reader = PulseReader(writer.path)
    look = min(timeit.repeat(lambda: writer.trace_order.number not in (0, 0), number=100_000, repeat=5)) / 100_000 * 1e9
    reader.close()
    print(f"hook of a step: {without:.0f} ns without the place for a trace, {with_it:.0f} ns with it")
    print(f"look whether somebody asks, once a second: {look:.0f} ns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        outside(folder)
        for make in (small, usual):
            training = Training(*make())
            for _ in range(STEPS):
                training.step()
            training.traced("plain", os.path.join(folder, "first"))
            rows: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in KINDS}
            bare = []
            for _ in range(rounds):
                bare.append(training.bare())
                for kind, row in rows.items():
                    row.append(training.traced(kind, os.path.join(folder, "trace")))
            print(
                f"{make.__name__}: {statistics.median(bare) * 1e3:.2f} ms a step without ({min(bare) * 1e3:.2f} to {max(bare) * 1e3:.2f})"
            )
            for kind, row in rows.items():
                step, start, stop, write, raw, packed = (statistics.median(column) for column in zip(*row, strict=True))
                more = statistics.median(one[0] / alone - 1 for one, alone in zip(row, bare, strict=True))
                print(
                    f"  {kind:7} step {step * 1e3:.2f} ms ({more:+.0%}), start {start * 1e3:.1f} ms, stop {stop * 1e3:.1f} ms, "
                    f"write {write * 1e3:.1f} ms, {raw / STEPS / 1e3:.0f} kB a step, {packed / STEPS / 1e3:.1f} kB compressed"
                )


if __name__ == "__main__":
    main()
