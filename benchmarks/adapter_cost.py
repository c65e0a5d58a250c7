"""Measure what a call of 4 values costs: cordee.log; W&B, TensorBoard and MLflow without and with the tee.

`python benchmarks/adapter_cost.py [--blocks N] [--calls N]` prints Markdown tables. Calls without and with the tee alternate in
blocks within one process, the tee switched by putting the library's own method back, so that both see the same machine.
Times of a call are medians of blocks; what the tee adds is the median of the differences of neighbours, in CPU time of the
calling thread, which other processes change least. The second table is what a
Python pays for `sitecustomize` when it starts.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOUR = {"loss": 1.234567, "tokens_per_s": 81234.5, "lr": 3e-4, "grad_norm": 0.987654321}
LIBRARIES = ("log", "wandb", "tensorboard", "mlflow")
STARTS = 41


class Paired:
    """Blocks of calls, in turns of every kind.

    Args:
        blocks, calls: how many blocks, and calls in each.
    """

    def __init__(self, blocks: int, calls: int) -> None:
        from cordee.wire.channel import ChannelReader

        self.blocks, self.calls = blocks, calls
        self._reader = ChannelReader(os.environ["CORDEE_CHANNEL"])
        self._step = 0

    def block(self, call: Callable[[int], object]) -> tuple[float, float]:
        """Return the mean microseconds of a call, by the clock and of CPU."""
        first, self._step = self._step, self._step + self.calls
        began, cpu = time.perf_counter(), time.thread_time()
        for step in range(first, self._step):
            call(step)
        taken, cpu = time.perf_counter() - began, time.thread_time() - cpu
        while self._reader.read(10_000)[0]:
            self._reader.acknowledge(self._reader.cursor)
        return taken / self.calls * 1e6, cpu / self.calls * 1e6

    def row(self, name: str, call: Callable[[int], object], switch: Callable[[bool], None]) -> None:
        """Print medians without and with the tee, and of what it adds."""
        pairs = []
        for _ in range(self.blocks + 1):
            switch(False)
            without = self.block(call)
            switch(True)
            pairs.append((without, self.block(call)))
        without, tee = zip(*pairs[1:], strict=True)  # the first pair is warming up
        by_clock = [statistics.median(wall for wall, _ in column) for column in (without, tee)]
        added = statistics.median(after - before for (_, before), (_, after) in zip(without, tee, strict=True))
        print(f"| {name} | {by_clock[0]:.2f} | {by_clock[1]:.2f} | {added:+.2f} |", flush=True)
        if self._reader.dropped:
            raise SystemExit(f"{self._reader.dropped} events were dropped: the numbers above are worthless")


class Nothing:
    """A library whose calls cost nothing, so that what remains is the tee."""

    def log(self, data: dict[str, float], step: int | None = None) -> None:
        """Take it."""


def switch_of(owner: Any, name: str) -> Callable[[bool], None]:
    """Return what puts an adapted method (True) or the library's own (False) in place."""
    adapted = getattr(owner, name)
    own = adapted.__wrapped__
    return lambda tee: setattr(owner, name, adapted if tee else own)


def measure(library: str, blocks: int, calls: int, folder: Path) -> None:
    """Print the row of one library, in a process that runs as a rank does."""
    paired = Paired(blocks, calls)
    if library == "log":
        import cordee

        paired.row("cordee.log", lambda step: cordee.log(step=step, **FOUR), lambda tee: None)
        library_alone = types.SimpleNamespace(Run=Nothing)
        adapter = importlib.import_module("cordee.client.adapters.wandb")
        adapter.wrap(library_alone)
        run = Nothing()
        renamed = {f"other_{name}": value for name, value in FOUR.items()}
        of = switch_of(Nothing, "log")
        paired.row("the tee alone: a library that does nothing", lambda step: run.log(renamed, step=step), of)
    elif library == "wandb":
        import wandb

        run = wandb.init(project="cost", dir=folder, mode="offline")
        of = switch_of(type(run), "log")
        paired.row("wandb `Run.log`, offline", lambda step: run.log(FOUR, step=step), of)
    elif library == "tensorboard":
        writer_module = importlib.import_module("torch.utils.tensorboard.writer")
        writer = writer_module.SummaryWriter(str(folder / "board"))

        def four(step: int) -> None:
            for name, value in FOUR.items():
                writer.add_scalar(name, value, step)

        paired.row("`SummaryWriter.add_scalar`, 4 calls", four, switch_of(writer_module.SummaryWriter, "add_scalar"))
    else:
        import mlflow

        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        paired.calls = max(1, calls // 50)
        with mlflow.start_run():
            of = switch_of(importlib.import_module("mlflow.tracking.client").MlflowClient, "log_batch")
            paired.row("`mlflow.log_metrics`, sqlite", lambda step: mlflow.log_metrics(FOUR, step=step), of)


def as_rank(argv: list[str], folder: Path, node_zip: Path, **more: str) -> None:
    """Run a command in a rank's environment."""
    from cordee.wire.channel import create_channel

    channel = Path(tempfile.mktemp(".channel", dir=folder))
    create_channel(channel)
    env = {**os.environ, "CORDEE_CHANNEL": str(channel), "CORDEE_ADAPTERS": "wandb,tensorboard,mlflow", **more}
    env.update(PYTHONPATH=str(node_zip), WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(folder))
    subprocess.run(argv, env=env, check=True, stderr=subprocess.DEVNULL)


def start_cost(folder: Path, node_zip: Path) -> None:
    """Print the CPU milliseconds of a Python's start: with node.zip alone, and with the adapters waiting in it."""
    kinds: dict[str, dict[str, str]] = {
        "nothing on PYTHONPATH": {},
        "node.zip, no adapters": {"PYTHONPATH": str(node_zip)},
        "node.zip, adapters wait": {"PYTHONPATH": str(node_zip), "CORDEE_CHANNEL": "x", "CORDEE_ADAPTERS": "wandb"},
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for _ in range(STARTS):
        for name, more in kinds.items():
            began = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", "pass"], env={**clean, **more}, check=True)
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            times[name].append((ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime) * 1e3)
    print("\n| a Python starts | CPU ms, median | over the first |\n|---|---|---|")
    first = next(iter(times.values()))
    for name, taken in times.items():
        over = statistics.median(mine - bare for mine, bare in zip(taken, first, strict=True))
        print(f"| {name} | {statistics.median(taken):.2f} | {over:+.2f} |")


def main() -> None:
    """Run every library in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--library", choices=LIBRARIES)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.library:
        measure(options.library, options.blocks, options.calls, options.folder)
        return
    from cordee.job.submit.bundle import write_node_zip

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_node_zip(folder / "node.zip")
        print("| call of 4 values | µs without | µs with the tee | CPU µs added |\n|---|---|---|---|", flush=True)
        for library in LIBRARIES:
            words = [sys.executable, __file__, "--library", library, "--folder", name]
            words += ["--blocks", str(options.blocks), "--calls", str(options.calls)]
            as_rank(words, folder, folder / "node.zip")
        start_cost(folder, folder / "node.zip")


if __name__ == "__main__":
    main()
