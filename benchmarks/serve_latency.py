"""How quickly `cordee serve` answers, over real connections to a real server over a made run.

python benchmarks/serve_latency.py [--gpus 1024] [--seconds 600] [--times 40]

Measured: a heat map of 1,024 devices x 120 columns and bands of 600 points at the server (the answer's own header and over the
connection, for a sealed run and for one that is being written, each question asked anew so that nothing is answered from the
cache), the run's document, the first event of a stream, and the time from a sample's writing to its event.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from cordee.runs.folder import RunFolder
from cordee.telemetry.store.reader import Run
from support.made.runs import MadeRun, follow_run, write_run
from support.servers.serving import ServedRuns

METRICS = {"gpu": ("gpu_power_watts", "gpu_sm_ratio"), "node": ("cpu_busy_ratio",), "rank": ("cpu_cores_ratio",)}
POWER = {"group": "gpu", "metric": "gpu_power_watts", "format": "frame"}
EVENT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1024)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--times", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        sealed = write_run(runs, MadeRun(given.gpus, given.seconds, metrics=METRICS))
        found = {"gpus": given.gpus, "seconds": given.seconds, "cpus": os.cpu_count()}
        found["sealed"] = latencies(runs, sealed, given.times)
        found["live"] = live(runs, given.gpus, given.seconds, given.times)
    print(json.dumps(found, indent=2))


def latencies(runs: Path, folder: RunFolder, times: int) -> dict[str, object]:
    """Return median and greatest milliseconds of each question, and the bytes of its answer."""
    run = Run(folder)
    first, stop = run.source("gpu").extent()
    found: dict[str, object] = {}
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url, timeout=120.0) as client:
        of_run = f"/api/runs/{folder.id}"
        for name, path, values in (
            ("heat_120_columns", f"{of_run}/heat", {**POWER, "columns": 120}),
            ("bands_600_points", f"{of_run}/bands", {**POWER, "points": 600}),
            ("document", of_run, {}),
            ("document_brief", of_run, {"brief": True}),
            ("groups", f"{of_run}/groups", {}),
        ):
            asked = iter(range(10**6))

            def ask(path: str = path, values: dict[str, object] = values, asked: object = asked) -> httpx.Response:
                moved = next(asked) * 1e-5  # type: ignore[call-overload]
                window = {"start": first - moved, "stop": stop + moved} if values.get("group") else {"_": moved}
                return client.get(path, params={**values, **window})

            found[name] = measured(ask, times)
        found["not_changed"] = measured(_conditional(client, of_run), times)
    return found


def _conditional(client: httpx.Client, path: str) -> Callable[[], httpx.Response]:
    tag = client.get(path).headers["etag"]
    return lambda: client.get(path, headers={"If-None-Match": tag})


def measured(ask: Callable[[], httpx.Response], times: int) -> dict[str, float]:
    """Return milliseconds over the connection, at the server's CPU, and bytes."""
    ask()
    spans, size = [], 0
    began_cpu = time.process_time()
    for _ in range(times):
        began = time.perf_counter()
        size = int(ask().headers.get("content-length", 0))
        spans.append((time.perf_counter() - began) * 1e3)
    cpu = (time.process_time() - began_cpu) * 1e3 / times
    return {
        "median_ms": round(statistics.median(spans), 2),
        "most_ms": round(max(spans), 2),
        "cpu_ms_with_client": round(cpu, 2),
        "bytes": size,
    }


def live(runs: Path, gpus: int, seconds: int, times: int) -> dict[str, object]:
    """Return the same of a run that is written meanwhile, with the first event and the lag from sample to event."""
    lags: list[float] = []
    begun, ending = threading.Event(), threading.Event()
    where: list[RunFolder] = []

    def write() -> None:
        for folder in follow_run(runs, MadeRun(gpus, min(seconds, 120), name="live", metrics=METRICS)):
            where[:] = [folder]
            begun.set()
            if ending.is_set():
                return

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    begun.wait()
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url, timeout=EVENT_S) as client:
        began = time.perf_counter()
        with client.stream("GET", f"/api/runs/{where[0].id}/live") as answer:
            first_ms = None
            kind = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                kind = value if name == "event" else kind
                if name == "data" and first_ms is None:
                    first_ms = (time.perf_counter() - began) * 1e3
                if name == "data" and kind == "samples":
                    lags.append(time.time() - json.loads(value)["gpu"])
                if len(lags) > 20:
                    break
        found = latencies(runs, where[0], times)
    ending.set()
    writer.join(EVENT_S)
    return {
        "first_event_ms": first_ms,
        "sample_to_event_s": {"median": round(statistics.median(lags), 2), "most": round(max(lags), 2)},
        **found,
    }


if __name__ == "__main__":
    main()
