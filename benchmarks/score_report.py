"""What scoring and its pages cost for a large job: prints a Markdown table.

    python benchmarks/score_report.py [--devices 1000] [--seconds 3600] [--per-node 4] [--gssr VENV] [--folder DIR]

The recording is made as samplers make it: a block log for each node, 20 metrics of each GPU at 1 Hz, nodes' and ranks' own
metrics beside them. Each step then runs in a process of its own, for its own peak of memory. `--gssr` names a virtual
environment in which the PyPI package gssr is installed: its own report of 64 GPUs is measured in the same run, from files
as it writes them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SCORE = """
import json, resource, sys, time
from pathlib import Path
folder = sys.argv[1]
begun = time.perf_counter()
from cordee.systems.score.load import load
from cordee.systems.score.score import score
from cordee.systems.score.report import render
laps = {"import": time.perf_counter()}
trace = load(folder)
laps["load"] = time.perf_counter()
result = score(trace)
laps["score"] = time.perf_counter()
page = render([result], [trace], Path(folder))
laps["pages"] = time.perf_counter()
took, last = {}, begun
for name, moment in laps.items():
    took[name], last = moment - last, moment
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
sizes = {path.name: path.stat().st_size for path in page.parent.iterdir()}
print(json.dumps({"seconds": took, "peak_bytes": peak, "cpu_s": time.process_time(), "sizes": sizes, "score": result.shares.score}))
"""
_SEAL = "import sys; from cordee.telemetry.store.reader import open_run; open_run(sys.argv[1]).seal()"


def make_recording(folder: Path, devices: int, per_node: int, seconds: int) -> float:
    """Write a recording of made-up samples and return the seconds that it took."""
    import numpy as np

    from support.recordings.recording import made_node, write_recording
    from support.recordings.synthetic_traces import GPU_METRICS, Synthetic

    begun = time.perf_counter()
    nodes = -(-devices // per_node)
    rank_metrics = ("cpu_cores_ratio", "cpu_share_cores", "memory_rss_bytes", "thread_busiest_ratio")
    node_metrics = ("cpu_busy_ratio", "memory_used_bytes", "memory_total_bytes", "pressure_io_ratio")
    made = []
    variants = [Synthetic(nodes=1, per_node=per_node, seconds=seconds, seed=seed).trace() for seed in range(8)]
    for index in range(nodes):
        trace = variants[index % len(variants)]
        turn = index // len(variants) * 7  # shifted, so that no two nodes are alike
        node = made_node(index, per_node, {name: np.roll(trace.load(name), turn, axis=0) for name in GPU_METRICS})
        node.rank = {name: trace.rank.load(name) for name in rank_metrics}
        node.node_values = {name: trace.node.load(name)[:, 0] for name in node_metrics}
        made.append(node)
        if len(made) == 50 or index == nodes - 1:
            write_recording(folder, made, job="4711", step="0", world_size=nodes * per_node)
            made = []
    return time.perf_counter() - begun


def measured(code: str, folder: Path) -> tuple[float, str]:
    """Run Python code on a folder in a process of its own; returns (wall seconds, what it printed)."""
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True)
    return time.perf_counter() - begun, done.stdout


def row(name: str, cells: list[str]) -> None:
    """Print one row of a table."""
    print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--per-node", type=int, default=4)
    parser.add_argument("--gssr", help="a virtual environment with the PyPI package gssr")
    parser.add_argument("--gssr-devices", type=int, default=64)
    parser.add_argument(
        "--folder", type=Path, help="where the recording is made and left; a temporary one unless given"
    )
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="score-report-"))
    try:
        if not (folder / "recorders").is_dir():
            took = make_recording(folder, asked.devices, asked.per_node, asked.seconds)
            print(f"made in {took:.1f} s", file=sys.stderr)
        machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        print(f"{asked.devices} GPUs x {asked.seconds} s x 20 metrics; {machine}, load {os.getloadavg()[0]:.1f}\n")
        print("| what | as samplers left it | sealed |\n|---|---|---|")
        runs = [measured(_SCORE, folder)]
        sealing, _ = measured(_SEAL, folder)
        runs.append(measured(_SCORE, folder))
        found = [json.loads(printed) for _, printed in runs]
        row("`cordee score` (load, score, all pages), a process", [f"{wall:.1f} s" for wall, _ in runs])
        for name in found[0]["seconds"]:
            row(f"of which {name}", [f"{of['seconds'][name]:.1f} s" for of in found])
        row("CPU time of the process", [f"{of['cpu_s']:.1f} s" for of in found])
        row("peak of memory", [f"{of['peak_bytes'] / 1e6:.0f} MB" for of in found])
        for name in sorted(found[0]["sizes"]):
            row(name, [f"{of['sizes'][name] / 1e6:.2f} MB" for of in found])
        print(f"\nSealing, once: {sealing:.1f} s.")
        if asked.gssr:
            from gssr_report import gssr_report

            said = gssr_report(asked.gssr, asked.gssr_devices, asked.seconds)
            print(f"gssr, its report of {asked.gssr_devices} GPUs x {asked.seconds} s: {said}.")
    finally:
        if asked.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
