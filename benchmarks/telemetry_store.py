"""What storing and reading telemetry costs: prints a Markdown table.

    python benchmarks/telemetry_store.py [--devices 1024] [--metrics 20] [--seconds 600] [--per-node 4]

Values move like measured ones: slow drifts with noise, rounded to what sensors give; some stay constant.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cordee.runs.folder import RunFolder
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid, encode_schema
from cordee.telemetry.store.reader import open_run
from cordee.telemetry.store.seal import seal

START = 1_700_000_000.0


def values(metrics: int, seconds: int, devices: int) -> np.ndarray:
    """Return float64 (second, device, metric)."""
    random = np.random.default_rng(0)
    drift = np.cumsum(random.normal(0, 0.2, (seconds, devices, metrics)), axis=0) + 50
    drift = np.round(drift, 1)
    drift[:, :, ::4] = np.round(drift[0, :, ::4])
    return drift


def timed(action: Callable[[], Any], repeats: int = 1) -> tuple[float, float, Any]:
    """Return (median wall seconds, CPU seconds of one call, last result)."""
    walls, cpu, result = [], time.process_time(), None
    for _ in range(repeats):
        started = time.perf_counter()
        result = action()
        walls.append(time.perf_counter() - started)
    return sorted(walls)[repeats // 2], (time.process_time() - cpu) / repeats, result


def append(folder: RunFolder, encoded: list[bytes]) -> None:
    """Store all seconds as a supervisor does: one message per node and second, a flush per second."""
    writer = BlockLogWriter(folder.telemetry, 1)
    for records in encoded:
        writer.append(records)
        writer.tick()
    if not writer.close():
        raise SystemExit(f"the disk refused: {writer.last_error}")


def messages(data: np.ndarray, per_node: int) -> list[bytes]:
    """Return what the agents send, second by second."""
    seconds, devices, metrics = data.shape
    described = [{"name": f"metric_{at}_ratio", "unit": "ratio", "source": "benchmark"} for at in range(metrics)]
    encoded = []
    for second in range(seconds):
        for first in range(0, devices, per_node):
            ranks = list(range(first, min(devices, first + per_node)))
            schema, record = encode_schema(f"node-{first // per_node}", "rank", 1.0, ranks, described)
            grid = encode_grid(
                schema, START + second + 0.1, data[second, first : first + per_node].astype("<f4").tobytes()
            )
            encoded.append(record + grid if second == 0 else grid)
    return encoded


def size_of(path: Path) -> int:
    """Return the bytes of all files below `path`."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1024)
    parser.add_argument("--metrics", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--per-node", type=int, default=4)
    options = parser.parse_args()
    samples = options.devices * options.metrics * options.seconds
    data = values(options.metrics, options.seconds, options.devices)
    encoded = messages(data, options.per_node)
    rows: list[tuple[str, float, float, int, str]] = []
    with tempfile.TemporaryDirectory() as parent:
        folder = RunFolder.create(parent, "bench-20231114T221320Z-abcd")
        wall, cpu, _ = timed(lambda: append(folder, encoded))
        raw = size_of(folder.telemetry)
        rows.append(("append to the block log", wall, cpu, samples, f"{raw / samples:.2f}"))
        wall, cpu, grid = timed(lambda: open_run(folder.root).grid("rank", ["metric_1_ratio"]))
        rows.append(("one metric, nothing sealed", wall, cpu, samples, ""))
        wall, cpu, _ = timed(lambda: seal(folder.root, final=True))
        store = size_of(folder.telemetry / "sealed.zarr")
        rows.append(("seal, with rollups and fsync", wall, cpu, samples, f"{store / samples:.2f}"))
        base = size_of(folder.telemetry / "sealed.zarr" / "rank" / "values")
        files = sum(1 for path in (folder.telemetry / "sealed.zarr").rglob("*") if path.is_file())
        run = open_run(folder.root)
        wall, cpu, sealed = timed(lambda: run.grid("rank", ["metric_1_ratio"]), 5)
        if not np.array_equal(sealed.values, grid.values) or not np.allclose(sealed.values[0], data[:, :, 1]):
            raise SystemExit("what was read is not what was written")
        rows.append(("one metric, sealed", wall, cpu, options.devices * options.seconds, ""))
        wall, cpu, _ = timed(lambda: run.grid("rank", ["metric_1_ratio"], every=5), 5)
        rows.append(("heat map of 5 s bins", wall, cpu, options.devices * options.seconds // 5, ""))
        wall, cpu, _ = timed(lambda: run.grid("rank"), 3)
        rows.append(("all metrics, sealed", wall, cpu, samples, ""))
    print(
        f"{options.devices} devices x {options.metrics} metrics x {options.seconds} s = {samples / 1e6:.1f} M samples;"
    )
    print(
        f"sealed: {files} files, samples alone {base / samples:.2f} bytes each; {platform.machine()}, {os.cpu_count()} cores\n"
    )
    print("| what | wall s | CPU s | M samples/s | bytes per sample |\n|---|---|---|---|---|")
    for name, wall, cpu, count, size in rows:
        print(f"| {name} | {wall:.3f} | {cpu:.3f} | {count / wall / 1e6:.1f} | {size} |")


if __name__ == "__main__":
    main()
