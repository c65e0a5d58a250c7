"""The report of the PyPI package gssr on files as gssr 0.4 writes them: one JSON document per process, 16 DCGM fields.

    python benchmarks/gssr_report.py VENV [--devices 64] [--seconds 3600]

VENV is a virtual environment in which gssr is installed. What is measured: `gssr analyze --report`, from its files to its PDF.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

_FIELDS = {
    "gpu_utilization": "gpu_graphics_ratio",
    "sm_active": "gpu_sm_ratio",
    "sm_occupancy": "gpu_occupancy_ratio",
    "tensor_active": "gpu_tensor_ratio",
    "fp64_active": "gpu_fp64_ratio",
    "fp32_active": "gpu_fp32_ratio",
    "fp16_active": "gpu_fp16_ratio",
    "dram_active": "gpu_dram_ratio",
    "pcie_tx_bytes": "gpu_pcie_transmit_bytes_per_second",
    "pcie_rx_bytes": "gpu_pcie_receive_bytes_per_second",
    "nvlink_rx_bytes": "gpu_nvlink_receive_bytes_per_second",
    "nvlink_tx_bytes": "gpu_nvlink_transmit_bytes_per_second",
}
_MEMORY = ("fb_total", "fb_used", "fb_free", "fb_resv")


def write_gssr(folder: Path, devices: int, seconds: int, per_node: int = 4) -> None:
    """Write one document for each GPU, as processes with one GPU each leave them."""
    from support.recordings.synthetic_traces import Synthetic

    trace = Synthetic(nodes=1, per_node=per_node, seconds=seconds).trace()
    values = {name: trace.load(metric) for name, metric in _FIELDS.items()}
    values["gpu_utilization"] = (values["gpu_utilization"] * 100).round()
    for process in range(devices):
        columns = {name: of[:, process % per_node].tolist() for name, of in values.items()}
        columns.update({name: [40_000.0] * seconds for name in _MEMORY})
        metadata = {
            "job_id": 4711, "step_id": 0, "label": "job", "hostname": f"nid{process // per_node:06d}", "proc_id": process,
            "n_gpus": 1, "gpu_ids": [process % per_node], "start_time": 1.8e9, "end_time": 1.8e9 + seconds,
            "elapsed": float(seconds), "sampling_time": 1000, "n_samples": seconds, "cmd": "python train.py",
        }  # fmt: skip
        path = folder / f"proc_{process}.json"
        path.write_text(json.dumps({"metadata": metadata, "data": {str(process % per_node): columns}}))


def gssr_report(venv: str, devices: int, seconds: int) -> str:
    """Return what its report of so many GPUs took, or why it did not come about."""
    command = Path(venv).resolve() / "bin" / "gssr"
    with tempfile.TemporaryDirectory(prefix="gssr-") as place:
        recorded = Path(place) / "recorded" / "step_0"
        recorded.mkdir(parents=True)
        write_gssr(recorded, devices, seconds)
        argv = [str(command), "analyze", "--input", str(recorded.parent), "--report", "--silent"]
        begun = time.perf_counter()
        done = subprocess.run(argv, cwd=place, capture_output=True, text=True)
        took = time.perf_counter() - begun
        pages = [path.stat().st_size for path in Path(place).glob("*.pdf")]
        if done.returncode or not pages:
            return f"failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}"
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return f"{took:.1f} s, {peak:.0f} MB, PDF {sum(pages) / 1e6:.2f} MB, load {os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("venv")
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=3600)
    asked = parser.parse_args()
    print(gssr_report(asked.venv, asked.devices, asked.seconds))
