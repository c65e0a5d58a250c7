"""What share of a GPU's counters kernels of a known kind reach, and what the score says of them.

    python benchmarks/gpu/score_caps.py [--seconds 30] [--folder DIR]

Each kernel runs on the first visible GPU below `cordee record`; nothing else should use it. Needed are PyTorch with CUDA and a
GPU with counters of its pipes (Hopper and newer, or DCGM). A cap is the median of the counter over the steady part. The table
printed last belongs into ~/.config/cordee/gpu-caps.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

# By kernel: the class that is right, the cap that it measures, and the counter of that.
KERNELS = {
    "gemm-bf16": ("compute", "tensor", "gpu_tensor_ratio"),
    "triad": ("memory", "dram", "gpu_dram_ratio"),
    "fma-fp64": ("compute", "fp64", "gpu_fp64_ratio"),
    "fma-fp32": ("compute", "fp32", "gpu_fp32_ratio"),
    "half-the-time": ("mixed", "", "gpu_graphics_ratio"),
}
# Multiply-adds in registers: no operation of torch keeps the fp32 and fp64 pipes full.
_FMA = "template <typename T> T fused(T x) { for (int i = 0; i < 20000; ++i) x = x * T(0.999) + T(0.5); return x; }"
_SETTLING_S = 1.0
_FEWEST = 8
_WIDEST = 0.1  # half of the samples lie within this share of the median, or it was not steady


def kernel(name: str) -> Callable[[], Any]:
    """Return what starts one kernel of a kind."""
    import torch

    if name.startswith("fma"):
        kind = torch.float64 if name.endswith("64") else torch.float32
        fused = torch.cuda.jiterator._create_jit_fn(_FMA)
        values = torch.ones(1 << 22, device="cuda", dtype=kind)
        return lambda: fused(values)
    if name == "triad":
        a, b, c = (torch.ones(1 << 29, device="cuda") for _ in range(3))
        return lambda: torch.add(b, c, alpha=0.5, out=a)
    left, right = (torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def work(name: str, seconds: float) -> None:
    """Run a kernel over and over; print when the steady part began."""
    import torch

    start = kernel(name)
    done = torch.cuda.Event(blocking=True)  # a thread that spins would look like one that launches
    for _ in range(4):
        start()
    torch.cuda.synchronize()
    print(time.time(), flush=True)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        for _ in range(8):
            start()
        done.record()
        done.synchronize()
        if name == "half-the-time":
            time.sleep(time.monotonic() - begun)


def measure(name: str, seconds: float, folder: Path) -> tuple[str, float | None, str]:
    """Record a kernel; return the GPU's model, the median of its counter (None: not steady), and the class found."""
    import numpy as np

    from cordee.systems.score.load import load
    from cordee.systems.score.result import CLASSES, UNKNOWN
    from cordee.systems.score.score import score

    one = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    argv = [sys.executable, "-m", "cordee.cli", "record", "-q", "--interval", "200ms", "-o", str(folder), "--"]
    argv += [sys.executable, __file__, "--kernel", name, "--seconds", str(seconds)]
    said = subprocess.run(
        argv, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": one}
    ).stdout
    began = float(said.split()[-1])
    trace = load(folder)
    values = trace.load(KERNELS[name][2])
    windows = score(trace).windows
    inside = (windows.starts >= began) & (windows.starts + windows.length_s <= began + seconds)
    names = [CLASSES[code] if code >= 0 else UNKNOWN for code in windows.classes[inside].ravel()]
    found = Counter(names).most_common(1)[0][0] if names else UNKNOWN
    steady = (trace.times >= began + _SETTLING_S) & (trace.times <= began + seconds)
    known = values[steady] if values is not None else np.empty(0)
    known = known[np.isfinite(known)]
    if len(known) < _FEWEST:
        return trace.devices[0].model, None, found
    low, median, high = (float(value) for value in np.percentile(known, (25, 50, 75)))
    is_steady = not KERNELS[name][1] or high - low <= _WIDEST * median
    return trace.devices[0].model, median if is_steady else None, found


def main() -> None:
    """Print a table of what was measured, and the caps as TOML."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of the steady part of each kernel")
    parser.add_argument("--folder", type=Path, help="where the recordings go")
    parser.add_argument("--kernel", choices=list(KERNELS), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.kernel:
        work(asked.kernel, asked.seconds)
        return
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="score-caps-"))
    caps, model = {}, ""
    print("| kernel | counter | median | class | right class |\n|---|---|---|---|---|")
    for name, (right, cap, counter) in KERNELS.items():
        model, value, found = measure(name, asked.seconds, folder / name)
        print(f"| {name} | {counter} | {'-' if value is None else f'{value:.3f}'} | {found} | {right} |")
        if cap and value is not None:
            caps[cap] = round(value, 4)
    print(f"\n[model.{json.dumps(model)}]")
    for key, value in {**caps, "origin": "benchmarks/gpu/score_caps.py", "date": time.strftime("%Y-%m-%d")}.items():
        print(f"{key} = {json.dumps(value)}")


if __name__ == "__main__":
    main()
