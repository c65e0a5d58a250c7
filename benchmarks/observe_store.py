"""Ingest, size and queries of Cordée's store beside VictoriaMetrics and Prometheus, in one run: prints Markdown tables.

    python benchmarks/observe_store.py [--devices 1024] [--metrics 20] [--seconds 600] [--peers all] [--live-devices 10752]

CPU seconds are those of whole processes: of Cordée the writer of the block log and the child that seals it, from the start of
the interpreter on; of the others the server from its start to its end. What makes and sends the samples counts for none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from telemetry_store import size_of, values

from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid, encode_schema
from cordee.telemetry.store.reader import open_run
from cordee.telemetry.store.views import bands, heat

PORTS = {"VictoriaMetrics": 18428, "Prometheus": 19090}
METRIC = "metric_1_ratio"
SEALED_EVERY_S = 120


class Row(NamedTuple):
    """One store: CPU seconds, bytes on disk, files, and milliseconds of the two queries."""

    name: str
    cpu_s: float
    size_bytes: int
    files: int
    heat_ms: float
    bands_ms: float


def in_child(action: Callable[[], None]) -> float:
    """Run it in a forked process and return its CPU seconds."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return waited(pid)


def waited(pid: int) -> float:
    """Wait for a process and return its CPU seconds."""
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"a process of the benchmark failed: {status}")
    return used.ru_utime + used.ru_stime


def sealed(folder: RunFolder, *options: str) -> float:
    """Seal as the supervisor does, in a child, and return its CPU seconds."""
    command = [sys.executable, "-m", "cordee.telemetry.store.seal", str(folder.root), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    return waited(process.pid)


def median_ms(action: Callable[[], Any], repeats: int = 11) -> float:
    """Return the median of the wall times."""
    walls = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        walls.append(1000 * (time.perf_counter() - started))
    return statistics.median(walls)


def messages(data: np.ndarray, start: float, per_node: int) -> list[bytes]:
    """Return what the agents send of float32 (second, device, metric), second by second."""
    seconds, devices, metrics = data.shape
    described = [{"name": f"metric_{at}_ratio", "unit": "ratio", "source": "benchmark"} for at in range(metrics)]
    schemas = []
    for first in range(0, devices, per_node):
        ranks = list(range(first, min(devices, first + per_node)))
        schemas.append(encode_schema(f"node-{first // per_node}", "rank", 1.0, ranks, described))
    encoded = [record for _, record in schemas]
    for second in range(seconds):
        for node, (schema, _) in enumerate(schemas):
            piece = data[second, node * per_node : (node + 1) * per_node]
            encoded.append(encode_grid(schema, start + second + 0.1, piece.tobytes()))
    return encoded


def write(folder: RunFolder, encoded: list[bytes]) -> None:
    """Store messages as a supervisor does."""
    writer = BlockLogWriter(folder.telemetry, 1)
    for records in encoded:
        writer.append(records)
        writer.tick()
    if not writer.close():
        raise SystemExit(f"the disk refused: {writer.last_error}")


def cordee(data: np.ndarray, start: float, per_node: int, parent: Path) -> list[Row]:
    """Measure Cordée: of the queries those over the tail first, then over what is sealed."""
    folder = RunFolder.create(parent, "bench-20260101T000000Z-abcd")
    encoded = messages(data.astype("<f4"), start, per_node)
    cpu_s = in_child(lambda: write(folder, encoded))
    stop = start + len(data)

    def queries() -> tuple[float, float]:
        run = open_run(folder.root)
        seen = heat(run, "rank", METRIC, start, stop, columns=120)
        print(f"  heat map {seen.values.shape}, {seen.values.nbytes / 1e6:.2f} MB", file=sys.stderr)
        return (
            median_ms(lambda: heat(run, "rank", METRIC, start, stop, columns=120)),
            median_ms(lambda: bands(run, "rank", METRIC, start, stop, points=600)),
        )

    live = Row("Cordée, nothing sealed", cpu_s, size_of(folder.telemetry), files_of(folder.telemetry), *queries())
    cpu_s += sealed(folder, "--final")
    journal = JournalWriter(folder.journal, "supervisor-1", 1)
    journal.append("sealed", until=stop)
    journal.append("ended", state="finished", exit_code=0)
    sealed(folder, "--drop")
    return [live, Row("Cordée, sealed", cpu_s, size_of(folder.telemetry), files_of(folder.telemetry), *queries())]


def files_of(path: Path) -> int:
    """Return how many files lie below `path`."""
    return sum(file.is_file() for file in path.rglob("*"))


class RemoteWrite:
    """Prometheus remote write requests of one second each: a template in which values and times are replaced.

    Snappy's frame is one literal: the format allows it, and the servers decode it in no time.
    """

    def __init__(self, devices: int, metrics: int) -> None:
        pieces, at = [], 0
        offsets = []
        for device in range(devices):
            for metric in range(metrics):
                labels = {"__name__": f"metric_{metric}_ratio", "node": f"node-{device // 4}", "rank": str(device)}
                text = b"".join(_field(1, _field(1, k.encode()) + _field(2, v.encode())) for k, v in labels.items())
                series = text + b"\x12\x10\x09" + bytes(8) + b"\x10" + bytes(6)
                head = b"\x0a" + _varint(len(series))
                offsets.append(at + len(head) + len(text) + 3)
                pieces.append(head + series)
                at += len(pieces[-1])
        self._buffer = np.frombuffer(bytearray(b"".join(pieces)), np.uint8)
        self._values = np.array(offsets)[:, None] + np.arange(8)
        self._times = np.array(offsets)[:, None] + 9 + np.arange(6)

    def request(self, row: np.ndarray, moment: float) -> bytes:
        """Return the body for float64 (device, metric) at a UTC time."""
        self._buffer[self._values] = row.reshape(-1, 1).astype("<f8").view(np.uint8)
        self._buffer[self._times] = np.frombuffer(_varint(int(moment * 1000)), np.uint8)
        size = len(self._buffer)
        return _varint(size) + b"\xfc" + (size - 1).to_bytes(4, "little") + self._buffer.tobytes()


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def peer(name: str, command: list[str], data: np.ndarray, start: float, parent: Path, flush: str) -> Row:
    """Measure a server: `command` starts it on its port with its data below `parent`."""
    base = f"http://127.0.0.1:{PORTS[name]}"
    with open(parent / f"{name}.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(base, process)
        template = RemoteWrite(data.shape[1], data.shape[2])
        for second, row in enumerate(data):
            head = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
            body = template.request(row, start + second)
            urllib.request.urlopen(urllib.request.Request(f"{base}/api/v1/write", body, head), timeout=60).read()
        if flush:
            urllib.request.urlopen(base + flush, timeout=60).read()
        stop = start + len(data) - 1

        def ask(query: str, step: int) -> Any:
            asked = urllib.parse.urlencode({"query": query, "start": start, "end": stop, "step": step})
            with urllib.request.urlopen(f"{base}/api/v1/query_range?{asked}", timeout=120) as answer:
                return json.load(answer)["data"]["result"]

        found = len(ask(f"avg_over_time({METRIC}[5s])", 5))
        if found != data.shape[1]:
            raise SystemExit(f"{name} has {found} of {data.shape[1]} series")
        heat_ms = median_ms(lambda: ask(f"avg_over_time({METRIC}[5s])", 5), 5)
        spread = (f"quantile({share}, {METRIC})" for share in (0.05, 0.25, 0.5, 0.75, 0.95))
        queries = [f"avg({METRIC})", f"min({METRIC})", f"max({METRIC})", *spread]
        bands_ms = median_ms(lambda: [ask(query, 1) for query in queries], 3)
    finally:
        process.terminate()
        cpu_s = waited(process.pid)
    folder = parent / name
    return Row(name, cpu_s, size_of(folder), files_of(folder), heat_ms, bands_ms)


def wait_for(base: str, process: subprocess.Popen) -> None:
    """Return once the server answers."""
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"{process.args} ended at once")
        try:
            urllib.request.urlopen(f"{base}/-/healthy", timeout=5).read()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{process.args} does not answer")


def peers(data: np.ndarray, start: float, parent: Path, names: list[str]) -> list[Row]:
    """Measure the servers that are installed."""
    config = parent / "prometheus.yml"
    config.write_text("global: {}\n")
    commands = {
        "VictoriaMetrics": [
            "victoria-metrics",
            f"-storageDataPath={parent / 'VictoriaMetrics'}",
            f"-httpListenAddr=127.0.0.1:{PORTS['VictoriaMetrics']}",
            "-retentionPeriod=10y",
        ],
        "Prometheus": [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={parent / 'Prometheus'}",
            f"--web.listen-address=127.0.0.1:{PORTS['Prometheus']}",
            "--web.enable-remote-write-receiver",
        ],
    }
    rows = []
    for name in names:
        if shutil.which(commands[name][0]) is None:
            print(f"{name} is not installed", file=sys.stderr)
            continue
        flush = "/internal/force_flush" if name == "VictoriaMetrics" else ""
        rows.append(peer(name, commands[name], data, start, parent, flush))
    return rows


def live(devices: int, metrics: int, seconds: int, per_node: int, parent: Path) -> list[tuple[str, str]]:
    """Follow a run second by second, and seal it meanwhile; return what to print."""
    folder = RunFolder.create(parent, "live-20260101T000000Z-abcd")
    journal = JournalWriter(folder.journal, "supervisor-1", 1)
    start = float(int(time.time()) // 600 * 600)
    data = values(metrics, 60, devices).astype("<f4")
    writer = BlockLogWriter(folder.telemetry, 1)
    run = open_run(folder.root)
    spent = {"append": 0.0, "follow": 0.0, "seal": 0.0}
    delays, heats = [], []
    most_bytes = 0
    schemas = messages(data[:0], start, per_node)
    for second in range(seconds):
        encoded = messages(data[second % 60 : second % 60 + 1], start + second, per_node)[len(schemas) :]
        before = time.process_time()
        for records in schemas if second == 0 else ():
            writer.append(records)
        for records in encoded:
            writer.append(records)
        writer.flush()
        spent["append"] += time.process_time() - before
        before, began = time.process_time(), time.perf_counter()
        run.source("rank")
        spent["follow"] += time.process_time() - before
        delays.append(1000 * (time.perf_counter() - began))
        if second % 10 == 9:
            now = start + second
            heats.append(median_ms(lambda now=now: heat(run, "rank", METRIC, now - 599, now + 1), 1))
        if second % SEALED_EVERY_S == SEALED_EVERY_S - 1:
            spent["seal"] += sealed(folder)
            journal.append("sealed", until=start + second)
            spent["seal"] += sealed(folder, "--drop")
        most_bytes = max(most_bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    total = sum(spent.values()) / seconds
    rows = [(f"{what}, share of a core", f"{100 * used / seconds:.2f} %") for what, used in spent.items()]
    rows.append(("all together, share of a core", f"{100 * total:.2f} %"))
    rows.append(("a second of samples taken in, ms", f"{statistics.median(delays):.1f}"))
    if heats:
        rows.append(("heat map of the last 600 s, ms", f"{statistics.median(heats):.1f}"))
    rows.append(("most memory of writer and reader, with the data, MB", f"{most_bytes / 1e6:.0f}"))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1024)
    parser.add_argument("--metrics", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--per-node", type=int, default=4)
    parser.add_argument("--peers", default="all", help="all, none, VictoriaMetrics or Prometheus")
    parser.add_argument("--live-devices", type=int, default=10_752, help="0: leave this out")
    parser.add_argument("--live-seconds", type=int, default=300)
    options = parser.parse_args()
    samples = options.devices * options.metrics * options.seconds
    data = values(options.metrics, options.seconds, options.devices)
    start = float(int(time.time()) // 600 * 600 - options.seconds)
    names = {"all": list(PORTS), "none": []}.get(options.peers, [options.peers])
    with tempfile.TemporaryDirectory() as parent:
        rows = cordee(data, start, options.per_node, Path(parent)) + peers(data, start, Path(parent), names)
    print(
        f"{options.devices} devices x {options.metrics} metrics x {options.seconds} s = {samples / 1e6:.1f} M samples;"
        f" {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n"
    )
    print(
        "| store | CPU s per M samples | bytes per sample | files | heat map, ms | bands, ms |\n|---|---|---|---|---|---|"
    )
    for row in rows:
        print(
            f"| {row.name} | {row.cpu_s / samples * 1e6:.3f} | {row.size_bytes / samples:.2f} | {row.files}"
            f" | {row.heat_ms:.1f} | {row.bands_ms:.1f} |"
        )
    if options.live_devices:
        print(f"\n{options.live_devices} devices x {options.metrics} metrics at 1 Hz, {options.live_seconds} s\n")
        print("| what | measured |\n|---|---|")
        with tempfile.TemporaryDirectory() as parent:
            for what, measured in live(
                options.live_devices, options.metrics, options.live_seconds, options.per_node, Path(parent)
            ):
                print(f"| {what} | {measured} |")


if __name__ == "__main__":
    main()
