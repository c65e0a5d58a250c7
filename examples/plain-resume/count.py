"""A script that knows nothing of Cordée: it saves by itself and goes on with --resume."""

import argparse
import json
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--resume", help="a checkpoint to go on from")
parser.add_argument("--steps", type=int, default=40)
options = parser.parse_args()

total, first = 0, 0
if options.resume:
    saved = json.loads(Path(options.resume).read_text())
    total, first = saved["total"], saved["step"] + 1
    print(f"going on at step {first}")

folder = Path("checkpoints")
folder.mkdir(exist_ok=True)
for step in range(first, options.steps):
    total += step
    time.sleep(0.15)
    if step % 10 == 9:
        partial = folder / "partial"
        partial.write_text(json.dumps({"step": step, "total": total}))
        partial.rename(folder / f"step-{step:04d}.json")
        print(f"saved step {step}")
print(f"total {total}")
