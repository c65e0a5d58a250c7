"""Kills what keeps a training's checkpoints on nodes, at random moments: none may be damaged, and nothing that was promised lost.

    python benchmarks/checkpoint_kills.py --kills 40 --results kills.jsonl
    python benchmarks/checkpoint_kills.py --kills 8 --slurm 3 --results slurm.jsonl
    python benchmarks/checkpoint_kills.py --kills 5000 --simulated

Each run is a training of 2 nodes x 1 rank over Gloo with `tiers = ["memory", "shared"]` and an own pace so slow that saves are on their way
most of the time. While it trains, one of these is killed with SIGKILL, or lost, four times a run:

    rank      a rank
    writer    the process that writes for a rank
    peer      the keeper of a node
    node      an agent with all that it started, and what lay in that node's memory
    rename    the writer that completes a checkpoint, between its manifest and its name (as soon as the manifest is seen)

Before each kill it is looked at which saves lie whole on nodes (those that stay) or on shared storage; the next attempt must begin from the
newest of them or later, every checkpoint under its name must be whole by its check sums after each kill, and the run must end with the weights
of an undisturbed one, bit for bit. One line of JSON a run. With `--slurm` they are jobs of a real Slurm of so many nodes on this machine. With `--simulated`
the real code runs in one process, and what is killed ends before any of its calls to the file system: `support.runs.killed_saves`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kill_campaign
from kill_campaign import campaign, seeds_of
from on_slurm.common import led_to

from cordee.core.errors import CordeeError
from cordee.machine.node_folder import folders_of, memory_places
from cordee.systems.checkpoints.node.folder import MANIFEST, find_checkpoints
from cordee.systems.checkpoints.node.sums import verify
from cordee.systems.checkpoints.node.tiers.kept import KeptSaves
from cordee.testing.slurm import DisposableSlurm
from support.runs import killed_saves
from support.runs.real_run import LocalRun, SlurmRun

STEPS, WORLD = 400, 2
# Whole numbers throughout, so that weights do not depend on the order of sums; the ballast makes a save large enough to be met.
TRAINING = f"""
import hashlib, pathlib, sys, time
import torch, torch.distributed as dist
import cordee
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1 << 18, dtype=torch.float64), requires_grad=False) for _ in range(4)])
saver = cordee.checkpointer(model, every_steps=4)
gate, step = pathlib.Path(sys.argv[1]), saver.restore()
while step < {STEPS}:
    go_on = torch.tensor([float(step < {STEPS} - 1 or gate.exists())])
    given = torch.full((4,), float((step * 7919 + dist.get_rank() * 104729) % 1000))
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
    dist.all_reduce(given)
    time.sleep(0.05)
    if not go_on.item():
        continue
    for parameter, one in zip(model, given):
        parameter.data.mul_(0.5).add_(one.item())
    cordee.log(step=step, steps={STEPS})
    if saver.due(step):
        saver.save(step)
    step += 1
saver.wait()
print("weights", hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model)).hexdigest(), flush=True)
dist.destroy_process_group()
"""
KINDS = ("rank", "writer", "peer", "node", "rename")
KILLS_A_RUN = 4
_WRITER, _KEEPER = b"checkpoints.node.writer", b"tiers.keeper"
_PATIENT = {"vet__max_load": 1000.0, "scan__policy": "off", "timeouts__lost": 8.0, "hang__action": "report"}


def run_once(make: Callable[..., LocalRun], parent: Path, seed: int | None, longest_s: float) -> dict[str, Any]:
    """Run a training and return what happened; with a seed, kill parts of it."""
    place = Path(tempfile.mkdtemp(dir=parent))
    job, gate = place / "job", place / "gate"
    job.mkdir()
    (job / "train.py").write_text(TRAINING)
    (job / "cordee.toml").write_text(
        f'name = "kills"\nrun = "python train.py {gate}"\n[need]\nnodes = 2\nranks_per_node = 1\ncpus_per_rank = 1\n'
        '[checkpoint]\ntiers = ["memory", "shared"]\npace = "4MB/s"\n[restart]\nretries = 100000\n'
    )
    began, killed, wrong = time.monotonic(), [], []
    run = make(job, place / "runs", reported=False, **_PATIENT)
    run.start()
    try:
        if seed is None:
            gate.touch()
        else:
            rng = random.Random(seed)
            for _ in range(KILLS_A_RUN):
                attempt = len(run.events("attempt_started"))
                run.wait_training(attempt, longest_s)
                run.wait(lambda state: newest_promised(run, nodes_of(run)) > reached(run), longest_s)
                time.sleep(rng.uniform(0.0, 3.0))
                one, faults = kill(run, rng.choice(KINDS), rng, longest_s)
                killed.append(one)
                wrong += faults
            gate.touch()
        state = run.wait_end(2 * longest_s)
        if state.state != "finished":
            wrong.append(f"it ended {state.state}: {state.text}")
    except TimeoutError as error:
        wrong.append(str(error)[:3000])
    finally:
        run.end()
    wrong += damaged(run)
    lines = [line for line in run.output().decode(errors="replace").split("\n") if line.startswith("weights ")]
    begun = [event.get("resume_step") for event in run.events("attempt_started")]
    if not wrong:
        shutil.rmtree(place)
    return {
        "seed": seed,
        "killed": killed,
        "begun": begun,
        "weights": lines[-1].split()[1] if lines else None,
        "seconds": round(time.monotonic() - began, 1),
        "wrong": wrong,
        "run": str(run.folder.root),
    }


def kill(run: LocalRun, kind: str, rng: random.Random, longest_s: float) -> tuple[dict[str, Any], list[str]]:
    """Kill one thing; return what was killed, and what was wrong afterwards."""
    nodes = nodes_of(run)
    node, number = rng.choice(list(enumerate(nodes)))[::-1]
    attempts = len(run.events("attempt_started"))
    stay = [one for one in nodes if kind != "node" or one != node]
    promised = newest_promised(run, stay)
    restarts = True
    if kind == "rank":
        run.kill(f"rank {number}")
    elif kind == "node":
        run.kill(f"agent {node}")
        for folder in folders_of(run.folder.id, node):
            shutil.rmtree(folder, ignore_errors=True)
    elif kind == "rename":
        deadline = time.monotonic() + 30.0
        while not completing(run) and time.monotonic() < deadline:
            time.sleep(0.0005)
        restarts = not end_all(run, _WRITER, rng, every=True)
    else:
        restarts = not end_all(run, _WRITER if kind == "writer" else _KEEPER, rng)
    if not restarts:  # the training goes on; its next save tells
        time.sleep(rng.uniform(1.0, 3.0))
        return {"kind": kind, "promised": promised}, damaged(run)
    run.wait(lambda state: len(run.events("attempt_started")) > attempts, longest_s)
    begun = run.events("attempt_started")[attempts].get("resume_step")
    lost = (
        [f"{kind}: step {promised} was promised, and the next attempt began from {begun}"]
        if (begun or -1) < promised
        else []
    )
    return {"kind": kind, "node": node, "promised": promised, "begun": begun}, lost + damaged(run)


def end_all(run: LocalRun, what: bytes, rng: random.Random, every: bool = False) -> bool:
    """Kill one process of the run, or every one, whose command line names `what`; return whether there was one."""
    found = []
    for pid in run.processes():
        with contextlib.suppress(OSError):
            if what in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    for pid in found if every else rng.sample(found, min(1, len(found))):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def nodes_of(run: LocalRun) -> list[str]:
    """Return the names of the run's nodes."""
    return [node.node for node in run.state.nodes]


def completing(run: LocalRun) -> bool:
    """Return whether a checkpoint has its manifest and not its name yet."""
    return any((run.folder.root / "checkpoints").glob(f".step-*/{MANIFEST}"))


def reached(run: LocalRun) -> int:
    """Return the step that the newest attempt began from."""
    begun = run.events("attempt_started")
    return int((begun[-1].get("resume_step") if begun else None) or -1)


def newest_promised(run: LocalRun, nodes: list[str]) -> int:
    """Return the newest step that lies whole on some of these nodes, or on shared storage; -1 without one."""
    ranks: dict[str, set[int]] = {}
    for node in nodes:
        for below in folders_of(run.folder.id, node):
            for part in KeptSaves(below / "checkpoints").parts():
                ranks.setdefault(part.save.split(".")[0], set()).add(part.rank)
    steps: list[int | None] = [int(name.rpartition("-")[2]) for name, those in ranks.items() if len(those) == WORLD]
    steps += [found.step for found in find_checkpoints(run.folder.root / "checkpoints")]
    return max([step for step in steps if step is not None], default=-1)


def damaged(run: LocalRun) -> list[str]:
    """Return what is wrong with checkpoints under their names."""
    wrong = []
    for path in (run.folder.root / "checkpoints").glob("step-*"):
        try:
            verify(str(path), 0, 1)
        except FileNotFoundError as error:
            if path.exists():  # else it was removed as an older one meanwhile
                wrong.append(f"{path.name}: {error}")
        except (OSError, ValueError, CordeeError) as error:
            wrong.append(f"{path.name}: {error}")
    return wrong


def main() -> int:
    """Run the campaign; exit code 1 when something was lost or damaged."""
    parser = kill_campaign.options(__doc__, 40, "checkpoint-kills.jsonl")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds that an attempt may take to come")
    parser.add_argument("--simulated", action="store_true", help="in one process, without trainings: thousands")
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="checkpoint-kills-", dir=memory_places()[0] if given.simulated else None))
    if given.simulated:
        return simulated(given, scratch)
    with contextlib.ExitStack() as stack:
        make: Callable[..., LocalRun] = LocalRun
        if given.slurm:
            cluster = stack.enter_context(DisposableSlurm(scratch / "c", nodes=given.slurm))
            stack.enter_context(led_to(cluster, scratch))
            make = SlurmRun
        return report(campaign(lambda seed: run_once(make, scratch, seed, given.patience), given))


def simulated(given: argparse.Namespace, scratch: Path) -> int:
    """Kill in simulated saves and print what happened; cases in which something was wrong are left in `scratch`."""
    kinds, wrong, cases = killed_saves.campaign(scratch, given.kills, given.seed, given.seconds)
    print(f"| what | how many |\n|---|---|\n| cases | {cases} |")
    print("".join(f"| killed: {kind} | {count} |\n" for kind, count in sorted(kinds.items())), end="")
    print(
        f"| cases in which something was lost or damaged | {len(wrong)}{f': {wrong} in {scratch}' if wrong else ''} |"
    )
    return 1 if wrong else 0


def report(done: list[dict[str, Any]]) -> int:
    """Print what happened; return 1 when something was lost or damaged."""
    kinds = Counter(one["kind"] for run in done for one in run["killed"])
    print("| what | how many |\n|---|---|")
    print(f"| runs | {len(done)} |")
    print("".join(f"| killed: {kind} | {kinds[kind]} |\n" for kind in KINDS), end="")
    print(f"| runs in which something was lost, damaged or another weight | {seeds_of(done)} |")
    return 1 if any(one["wrong"] for one in done) else 0


if __name__ == "__main__":
    sys.exit(main())
