"""Behaves like a training: four ranks log what they do, rank 0 saves, and rank 3 is slower than the others."""

import json
import math
import os
import time
from pathlib import Path

import cordee

STEPS, TOKENS = 60, 8192
rank = int(os.environ["RANK"])
folder = Path("checkpoints")
folder.mkdir(exist_ok=True)

for step in range(STEPS):
    began = time.perf_counter()
    time.sleep(0.12 if rank == 3 else 0.09)
    seconds = time.perf_counter() - began
    loss = 4 * math.exp(-step / 25) + 0.05 * math.sin(step + rank)
    cordee.log(step=step, steps=STEPS, loss=loss, tokens_per_s=TOKENS / seconds, step_seconds=seconds)
    if rank == 0 and step % 20 == 19:
        partial = folder / "partial"
        partial.write_text(json.dumps({"step": step}))
        partial.rename(folder / f"step-{step + 1}.json")
