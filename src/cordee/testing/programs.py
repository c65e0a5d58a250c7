"""Training scripts for tests: small, deterministic, with checkpoints."""

from __future__ import annotations

# `train.py STEPS PAUSE_S [GATE]`: counts, saves every five steps and when it is asked to stop, goes on from a checkpoint.
# With a GATE it counts on after STEPS until there is such a file: what befalls it meanwhile finds it training, however slow the
# machine is.
COUNTING = """
import itertools, json, os, pathlib, sys, time
import cordee
steps, pause = int(sys.argv[1]), float(sys.argv[2])
gate = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
rank = int(os.environ.get("RANK", "0"))
folder = pathlib.Path(os.environ["CORDEE_CHECKPOINT_DIR"])
start = 0
if os.environ.get("CORDEE_RESUME_FROM"):
    start = json.loads(pathlib.Path(os.environ["CORDEE_RESUME_FROM"]).read_text())["next"]
sys.stdout.write(f"from {start}\\n")  # in one piece: whoever is killed here leaves no half line
sys.stdout.flush()
for step in itertools.count(start):
    if step >= steps and (gate is None or gate.exists()):
        print("counted to", steps, flush=True)
        break
    stop = cordee.stopping(step)
    cordee.log(step=step, steps=max(steps, step + 1), loss=1.0 / (step + 1))
    time.sleep(pause)
    if rank == 0 and (stop or step % 5 == 4):
        partial = folder / f".partial-{os.getpid()}"
        partial.write_text(json.dumps({"next": step + 1}))
        partial.rename(folder / f"step-{step + 1:06d}")
    if stop:
        print("stopped at", step, flush=True)
        break
"""
