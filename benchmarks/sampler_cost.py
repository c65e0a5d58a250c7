"""What sampling GPUs costs: CPU per tick at 1 Hz and 10 Hz and memory, with a stub of NVML, beside calls per metric.

The stub (support.nvml) answers at once, or computes for as long as --driver assumes that a driver's calls take.
Ticks come at their real pace, so that caches are as cold as they are in a job. What is sampled is written to a block log.

python benchmarks/sampler_cost.py
python benchmarks/sampler_cost.py --ticks 100 --rates 10 --driver 0
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Eleven metrics of GPM and nine basic ones: 20 of each GPU.
GPM = {1: 93.0, 2: 88.0, 3: 41.0, 5: 60.0, 7: 60.0, 10: 55.0, 12: 4.0, 20: 900, 21: 2100, 60: 30_000, 61: 31_000}
# Microseconds that a driver's calls are assumed to compute; no GPU was there to measure them.
ASSUMED_US = {
    "nvmlGpmSampleGet": 50,
    "nvmlGpmMetricsGet": 10,
    "nvmlDeviceGetMemoryInfo_v2": 5,
    "nvmlDeviceGetTotalEnergyConsumption": 10,
    "nvmlDeviceGetClockInfo": 5,
    "nvmlDeviceGetMaxClockInfo": 5,
    "nvmlDeviceGetTemperature": 5,
    "nvmlDeviceGetViolationStatus": 5,
    "nvmlDeviceGetComputeRunningProcesses_v3": 50,
}
CASES = {
    "gpu": "GPUs",
    "all": "GPUs, node and ranks",
    "no threads": "GPUs, node and ranks, threads not looked at",
    "per metric": "peers' way: nvidia-ml-py, a call per metric",
}


def written(folder: Path, samplers: dict, interval_s: float):
    """Return what takes one sample of each sampler and appends it to a block log."""
    from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid, encode_schema

    folder.mkdir(parents=True, exist_ok=True)
    writer = BlockLogWriter(folder, 1)
    known: dict[str, tuple[list, int]] = {}

    def tick() -> None:
        moment = time.time()
        for group, sampler in samplers.items():
            values = sampler.sample()
            devices = sampler.devices()
            if group not in known or known[group][0] != devices:
                schema, record = encode_schema("node", group, interval_s, devices, sampler.metrics())
                writer.append(record)
                known[group] = (devices, schema)
            writer.append(encode_grid(known[group][1], moment, values))
        writer.tick()

    return tick


def ours(case: str, interval_s: float, folder: Path, pids: dict[int, int]):
    """Return a tick of Cordée's samplers."""
    from cordee.telemetry.node.samplers.gpu import open_gpus

    gpus, refused = open_gpus("node", source="nvml-gpm", interval_s=interval_s)
    assert gpus is not None, refused
    assert len(gpus.metrics()) == 20, [metric["name"] for metric in gpus.metrics()]
    samplers = {"gpu": gpus}
    if case != "gpu":
        from cordee.telemetry.node.samplers.host import node_sampler, rank_sampler

        samplers["node"] = node_sampler("node")
        samplers["rank"] = rank_sampler(lambda: pids, interval_s if case == "all" else 0.1)
    return written(folder, samplers, interval_s)


def per_metric():
    """Return a tick that asks as monitors commonly do: new samples, new structs, one call for each value."""
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    before: dict[int, object] = {}

    def gpm(index: int, handle: object) -> list[float]:
        sample = pynvml.nvmlGpmSampleGet(handle, pynvml.nvmlGpmSampleAlloc())
        found = []
        if index in before:
            for metric in GPM:
                asked = pynvml.c_nvmlGpmMetricsGet_t()
                asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 1
                asked.sample1, asked.sample2, asked.metrics[0].metricId = before[index], sample, metric
                found.append(pynvml.nvmlGpmMetricsGet(asked).metrics[0].value)
            pynvml.nvmlGpmSampleFree(before[index])
        before[index] = sample
        return found

    def tick() -> None:
        for index, handle in enumerate(handles):
            gpm(index, handle)
            pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
            pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            pynvml.nvmlDeviceGetViolationStatus(handle, pynvml.NVML_PERF_POLICY_POWER)
            pynvml.nvmlDeviceGetViolationStatus(handle, pynvml.NVML_PERF_POLICY_THERMAL)
            pynvml.nvmlDeviceGetComputeRunningProcesses(handle)

    return tick


def measure(options: argparse.Namespace) -> None:
    """Tick at the wanted pace and print what it took, as JSON; runs in a process of its own."""
    pids = {rank: int(pid) for rank, pid in enumerate(options.pids.split(",")) if pid}
    interval_s = 1 / options.rate
    started = time.process_time()
    tick = per_metric() if options.case == "per metric" else ours(options.case, interval_s, Path(options.folder), pids)
    tick()
    start_s = time.process_time() - started
    cpu_s: list[float] = []
    due = time.monotonic()
    for _ in range(options.ticks):
        due += interval_s
        time.sleep(max(0.0, due - time.monotonic()))
        before = time.process_time()
        tick()
        cpu_s.append(time.process_time() - before)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    print(
        json.dumps(
            {
                "mean": sum(cpu_s) / len(cpu_s),
                "median": sorted(cpu_s)[len(cpu_s) // 2],
                "start": start_s,
                "rss": resident,
            }
        )
    )


def run(case: str, rate: float, driver: float, options: argparse.Namespace, pids: list[int], folder: Path) -> dict:
    """Measure one case in a process of its own."""
    from support.nvml import FakeGpus

    gpus = FakeGpus(folder / f"stub-{driver:g}", count=options.gpus, library=folder / "library")
    for index in range(options.gpus):
        gpus.gpm(index, {**GPM})
    for function, microseconds in ASSUMED_US.items():
        gpus.cost(function, round(microseconds * driver))
    ticks = options.ticks or round(max(20, min(200, 30 * rate)))
    command = [sys.executable, __file__, "--measure", "--case", case, "--rate", str(rate), "--ticks", str(ticks)]
    command += ["--pids", ",".join(map(str, pids)), "--folder", str(folder / f"log-{case}-{rate:g}-{driver:g}")]
    done = subprocess.run(command, env={**os.environ, **gpus.env}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--children", type=int, default=4)
    parser.add_argument("--ticks", type=int, default=0, help="0: half a minute's, at least 20 and at most 200")
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--driver", type=float, nargs="+", default=[0.0, 1.0], help="times the assumed cost of calls")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--pids", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options)
        return
    script = "; ".join(["sleep 3600 &"] * options.children).replace("&;", "&") + " wait"
    ranks = [subprocess.Popen(["bash", "-c", script], start_new_session=True) for _ in range(options.ranks)]
    print(f"{options.gpus} GPUs x 20 metrics, {options.ranks} ranks with {options.children} children each\n")
    print("| what | rate | driver's calls | CPU ms per tick (median) | share of a core | memory MB | CPU s to start |")
    print("|---|---|---|---|---|---|---|")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for driver in options.driver:
                for rate in options.rates:
                    for case, words in CASES.items():
                        got = run(case, rate, driver, options, [rank.pid for rank in ranks], Path(folder))
                        calls = f"{driver:g} x assumed" if driver else "answer at once"
                        share, took = got["mean"] * rate, f"{got['mean'] * 1e3:.2f} ({got['median'] * 1e3:.2f})"
                        print(
                            f"| {words} | {rate:g} Hz | {calls} | {took} | {share:.3%} | {got['rss'] / 1e6:.0f} | {got['start']:.2f} |",
                            flush=True,
                        )
    finally:
        for rank in ranks:
            os.killpg(rank.pid, 9)
            rank.wait()


if __name__ == "__main__":
    main()
