"""Batch inference beside a plain loop: `python benchmarks/batch_inference.py CHECKPOINTS`, on the demo's model; seconds of the clock.

The loop loads the model once and answers one sample after the other; `cordee service batch` has two tasks of eight samples at a time, and
its time has everything in it: export, scan, a run with its farm, two starts of Python and PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SAMPLES, TOKENS = 600, 24
SERVING = Path(__file__).parents[1] / "examples" / "char-gpt" / "serving"
LOOP = """
import json, sys
from cordee.systems.inference.batch.task import BatchModel
model = BatchModel(sys.argv[1], int(sys.argv[3]), "cpu")
with open(sys.argv[4], "w") as out:
    for number, line in enumerate(open(sys.argv[2])):
        out.write(json.dumps({"sample": number, "text": model.answers([json.loads(line)["prompt"]])[0]}) + "\\n")
"""


def timed(words: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Run a command; return seconds by the clock, and of CPU as far as its own children are waited for."""
    began, before = time.monotonic(), os.times()
    subprocess.run(words, check=True, env=env)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, cpu_s


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="cordee-batch-"))
    samples = folder / "samples.jsonl"
    samples.write_text("".join(json.dumps({"prompt": f"def f{n}(x):"}) + "\n" for n in range(SAMPLES)))
    cordee = str(Path(sys.executable).parent / "cordee")
    words = [cordee, "service", "batch", str(samples), "--model", sys.argv[1], "--config", str(SERVING), "--to"]
    words += [str(folder / "to"), "--tasks", "2", "--tokens", str(TOKENS), "--device", "cpu"]
    batch_s, _ = timed(words, dict(os.environ))
    outputs = (folder / "loop.jsonl", folder / "to" / "output.jsonl")
    model, answers = str(folder / "to" / "model" / "1"), str(folder / "loop.jsonl")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    loop_s, loop_cpu_s = timed([sys.executable, "-c", LOOP, model, str(samples), str(TOKENS), answers], env)
    texts = [[json.loads(line)["text"] for line in path.read_text().split("\n") if line] for path in outputs]
    same = sum(one == other for one, other in zip(*texts, strict=True))
    print(
        f"{SAMPLES} samples: batch {batch_s:.1f} s, loop {loop_s:.1f} s ({loop_cpu_s:.1f} s of CPU), "
        f"{same} answers are the same; load {os.getloadavg()[0]:.0f}"
    )


if __name__ == "__main__":
    main()
