"""Kills parts of a training at random and checks that nothing that was promised is lost.

    python benchmarks/faults.py --kills 100 --seed 1

Two runs of the same deterministic training with DDP over Gloo, 2 nodes x 1 rank: one undisturbed, one in which a rank, an
agent, the supervisor, the keeper or the watching client is killed every few seconds. The disturbed one must finish, log
every step, keep every complete checkpoint sound, leave no process, and end with the same weights, bit for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cordee.systems.checkpoints.node.folder import find_checkpoints
from cordee.telemetry.store.reader import Run
from support.runs.real_run import LocalRun

TRAINING = """
import hashlib, sys, time
import torch
import torch.distributed as dist
from torch import nn
import cordee
steps, pause = int(sys.argv[1]), float(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
saver = cordee.checkpointer(model, optimizer, every_steps=5, keep=3)
torch.manual_seed(1 + dist.get_rank())
for step in range(saver.restore(), steps):
    x = torch.randn(8, 16)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    cordee.log(step=step, loss=loss.item(), steps=steps)
    time.sleep(pause)
    if saver.due(step) or step == steps - 1:
        saver.save(step)
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
sys.stdout.write(f"weights {hashlib.sha256(weights).hexdigest()}\\n")
dist.destroy_process_group()
"""
PARTS = ("rank 0", "rank 1", "agent local-0", "agent local-1", "supervisor", "keeper", "client")


def job_folder(parent: Path, steps: int, pause: float) -> Path:
    """Write the training and its document; returns the job's folder."""
    folder = parent / "job"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAINING)
    (folder / "cordee.toml").write_text(
        f'name = "faults"\nrun = "python train.py {steps} {pause}"\n[need]\nnodes = 2\ncpus_per_rank = 1\n'
        "[restart]\nretries = 100000\n"
    )
    return folder


def weights_of(run: LocalRun) -> str:
    """Return the digest that rank 0 printed last."""
    lines = [line for line in run.output(0).decode().split("\n") if line.startswith("weights ")]
    return lines[-1].split()[1] if lines else "none"


def watch(run: LocalRun) -> subprocess.Popen[bytes]:
    """Start a client that watches the run."""
    command = [sys.executable, "-m", "cordee.faces.cli", "logs", "-f", str(run.folder.root)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def disturb(run: LocalRun, kills: int, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """Kill parts until `kills` have been killed; returns how often each, and complaints about checkpoints seen meanwhile."""
    killed: Counter[str] = Counter()
    complaints: list[str] = []
    client = watch(run)
    newest = -1
    try:
        while sum(killed.values()) < kills and not run.state.ended:
            time.sleep(rng.uniform(0.3, 3.0))
            part = rng.choice(PARTS)
            if part == "client":
                client.kill()
                client.wait()
                client = watch(run)
                killed[part] += 1
            else:
                with contextlib.suppress(ProcessLookupError, StopIteration):
                    run.kill(part)
                    killed[part.split()[0]] += 1
            problems: list[str] = []
            found = find_checkpoints(run.folder.checkpoints, "step-*", None, problems)
            step = found[-1].step if found and found[-1].step is not None else -1
            complaints += problems
            if step < newest:
                complaints.append(f"the newest complete checkpoint went back from {newest} to {step}")
            newest = max(newest, step)
    finally:
        client.kill()
        client.wait()
    return killed, complaints


def verify(run: LocalRun, steps: int, expected: str) -> list[str]:
    """Return what was lost."""
    complaints = []
    state = run.state
    if (state.state, state.exit_code) != ("finished", 0):
        complaints.append(f"it ended {state.state}: {state.text}")
    events = Run(run.folder).events().get("loss")
    for rank in (0, 1):
        logged = set() if events is None else set(events["step"][events["rank"] == rank].tolist())
        missing = sorted(set(range(steps)) - logged)
        if missing:
            complaints.append(f"rank {rank} has no record of steps {missing[:10]} ({len(missing)} in all)")
    by_writer: dict[str, list[int]] = {}
    for event in run.events():
        by_writer.setdefault(event["writer"], []).append(event["seq"])
    for writer, sequence in by_writer.items():
        if writer != "client" and sequence != list(range(len(sequence))):
            complaints.append(f"the journal of {writer} has gaps")
    found = find_checkpoints(run.folder.checkpoints, "step-*")
    if not found or found[-1].step != steps - 1 or len(found) != 3:
        complaints.append(f"checkpoints at the end: {[checkpoint.name for checkpoint in found]}")
    left = run.processes()
    if left:
        complaints.append(f"processes left: {left}")
    if weights_of(run) != expected:
        complaints.append(f"weights {weights_of(run)} differ from {expected}")
    return complaints


def campaign(kills: int, seed: int, parent: Path) -> tuple[dict[str, object], list[str]]:
    """Run both trainings; returns the facts and the complaints."""
    steps, pause = max(120, kills * 20), 0.05
    with LocalRun(job_folder(parent, steps, 0.0), parent / "runs") as calm:
        calm.wait_end(seconds=600)
        expected = weights_of(calm)
    started = time.monotonic()
    with LocalRun(job_folder(parent, steps, pause), parent / "runs") as run:
        run.wait_training()
        killed, complaints = disturb(run, kills, random.Random(seed))
        state = run.wait_end(seconds=1800)
        complaints += verify(run, steps, expected)
    facts = {
        "kills": sum(killed.values()),
        "killed": dict(killed),
        "steps": steps,
        "restarts": state.restarts,
        "supervisors": state.epoch,
        "seconds": round(time.monotonic() - started, 1),
    }
    if sum(killed.values()) < kills:
        complaints.append(f"only {sum(killed.values())} of {kills} kills happened before the run ended")
    return facts, complaints


def main() -> int:
    """Run the campaign and print a table; exit code 1 when something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        facts, complaints = campaign(options.kills, options.seed, Path(scratch))
    print("| fact | value |\n|---|---|")
    for name, value in facts.items():
        print(f"| {name} | {value} |")
    print(f"| lost | {'; '.join(complaints) or 'nothing'} |")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
