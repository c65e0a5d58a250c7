"""From a kill to the next step of the training: ranks, agents, supervisors, nodes and batch hosts."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cordee.backends.slurm.node.commands import job_record
from cordee.core.hostlist import expand_nodes
from cordee.runs.state import RunState
from cordee.testing.slurm import DisposableSlurm
from cordee.testing.slurm.daemons import node_processes
from on_slurm.common import Rows, marks, plain_script, sbatch, settle, text_of, until, write_job
from support.runs.real_run import SlurmRun

# Counts, saves every five steps, goes on from the newest checkpoint that it finds; with and without Cordée.
COUNTING = """
import json, os, pathlib, sys, time
import cordee
rank = int(os.environ.get("RANK") or os.environ["SLURM_PROCID"])
folder = pathlib.Path(os.environ["CORDEE_CHECKPOINT_DIR"])
found = sorted(folder.glob("step-*"))
start = json.loads(found[-1].read_text())["next"] if found else 0
print(f"from {start} {time.time()}", flush=True)
for step in range(start, 100000):
    stop = cordee.stopping(step)
    time.sleep(0.05)
    cordee.log(step=step, loss=1.0 / (step + 1))
    print(f"step {step} {time.time()}", flush=True)
    if rank == 0 and (stop or step % 5 == 4):
        partial = folder / ".partial"
        partial.write_text(json.dumps({"next": step + 1}))
        partial.rename(folder / f"step-{step + 1:06d}")
    if stop:
        break
"""
TWO = "nodes = 2\ncpus_per_rank = 1"
SPARE = f"{TWO}\nspare_nodes = 1"
_STEPS_BEFORE = 20
_MOST_S = 400.0


def recovery(cluster: DisposableSlurm, parent: Path, repeats: dict[str, int]) -> Rows:
    """Kill what `repeats` names as often as it says, and measure until rank 0 has made its next step."""
    rows = Rows("From a kill to rank 0's next step, 2 nodes")
    rng = random.Random(4)
    _parts_of_one_run(cluster, parent, repeats["parts"], rng, rows)
    scenes: dict[str, Callable[[], None]] = {
        "middle": lambda: _node(cluster, parent, rng, rows, "a middle node, spare takes over", _kill_middle),
        "silent": lambda: _node(cluster, parent, rng, rows, "a middle node falls silent, spare takes over", _freeze),
        "host10": lambda: _batch_host(cluster, parent, rng, rows, 10.0),
        "host60": lambda: _batch_host(cluster, parent, rng, rows, 60.0),
        "plain": lambda: _plain(cluster, parent, rng, rows, host=False),
        "plain host": lambda: _plain(cluster, parent, rng, rows, host=True),
    }
    for index in range(max(repeats.values())):
        for name, scene in scenes.items():
            if index < repeats[name]:
                settle(cluster)
                try:
                    scene()
                except TimeoutError as error:
                    print(error, file=sys.stderr, flush=True)
                    rows.notes.append(f"{name}: repeat {index + 1} did not come back within {_MOST_S:.0f} s")
                cluster.heal()
    rows.compare("a middle node, spare takes over", "a middle node, plain `sbatch --requeue` and srun")
    rows.compare("a middle node falls silent, spare takes over", "a middle node, plain `sbatch --requeue` and srun")
    for orphan in ("10 s", "60 s"):
        rows.compare(f"the batch host, orphan = {orphan}", "the batch host, plain `sbatch --requeue` and srun")
    rows.notes.append(f"Slurm counts a node as dead after SlurmdTimeout = {_timeout(cluster)} s here, 300 s by default")
    return rows


def _timeout(cluster: DisposableSlurm) -> str:
    text = cluster.command("scontrol", "show", "config")
    return next(line.split()[2] for line in text.splitlines() if line.startswith("SlurmdTimeout"))


def _parts_of_one_run(cluster: DisposableSlurm, parent: Path, repeats: int, rng: random.Random, rows: Rows) -> None:
    settle(cluster)
    with _started(parent, TWO) as run:
        for _ in range(repeats):
            for part in ("rank 1", "agent", "supervisor"):
                state = _training(run, rng)
                name = f"agent {_middle(run, state)}" if part == "agent" else part
                killed = time.time()
                run.kill(name)
                rows.add(f"kill -9 of {name.split()[0]}", _next_step(run, killed) - killed)


def _node(
    cluster: DisposableSlurm,
    parent: Path,
    rng: random.Random,
    rows: Rows,
    name: str,
    lose: Callable[[DisposableSlurm, str], None],
) -> None:
    with _started(parent, SPARE) as run:
        lost = _middle(run, _training(run, rng))
        killed = time.time()
        lose(cluster, lost)
        rows.add(name, _next_step(run, killed) - killed)
        cluster.kill_node(lost)


def _kill_middle(cluster: DisposableSlurm, node: str) -> None:
    cluster.kill_node(node)


def _freeze(cluster: DisposableSlurm, node: str) -> None:
    """Stop everything on a node, so that its connections stay open and nothing answers, as after a power cut."""
    for pid in node_processes(cluster.conf, node, cluster.folder / "log" / f"{node}.log"):
        os.kill(pid, signal.SIGSTOP)


def _batch_host(cluster: DisposableSlurm, parent: Path, rng: random.Random, rows: Rows, orphan_s: float) -> None:
    name = f"the batch host, orphan = {orphan_s:.0f} s"
    with _started(parent, SPARE, timeouts__orphan=orphan_s) as run:
        _training(run, rng)
        host = str((job_record(run.job) or {})["BatchHost"])
        killed = time.time()
        cluster.kill_node(host)
        again = _next_step(run, killed)
        continued = run.events("supervisor_started")[-1]
        state = run.state
        rows.add(name, again - killed)
        started = next(phase.start for phase in reversed(state.phases) if phase.name == "connect")
        rows.add(f"{name}: until the job runs again", started - killed)
        assert continued["segment"] == 2, continued


def _plain(cluster: DisposableSlurm, parent: Path, rng: random.Random, rows: Rows, *, host: bool) -> None:
    """The same training in a plain `sbatch --requeue`: Slurm itself notices the lost node and runs the job again."""
    job = write_job(parent / "plain", COUNTING, TWO)
    checkpoints = job / f"checkpoints-{time.time_ns()}"
    checkpoints.mkdir()
    options = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--requeue"]
    identity = sbatch(str(plain_script(job, options, head=f"export CORDEE_CHECKPOINT_DIR={checkpoints}")))
    output = job / f"plain-{identity}.out"
    until(lambda: len(marks(text_of(output), "step")) > 2 * _STEPS_BEFORE)
    time.sleep(rng.uniform(0.0, 1.0))
    record = job_record(identity) or {}
    lost = next(node for node in expand_nodes(record["NodeList"]) if (node == record["BatchHost"]) == host)
    killed = time.time()
    cluster.kill_node(lost)
    again = until(lambda: _step_after(text_of(output), killed), _MOST_S, 0.1)
    rows.add(f"{'the batch host' if host else 'a middle node'}, plain `sbatch --requeue` and srun", again - killed)


def _started(parent: Path, need: str, **flags: Any) -> SlurmRun:
    job = write_job(parent / "recovery", COUNTING, need)
    return SlurmRun(job, parent / "runs", vet__max_load=1000.0, **flags)


def _training(run: SlurmRun, rng: random.Random) -> RunState:
    """Return the state once rank 0 has counted for a while and a checkpoint of this attempt is there."""
    began = [at for _, at in marks(run.output(0).decode(), "from")]
    newest = max(began, default=0.0)

    def counted() -> bool:
        return sum(at > newest for _, at in marks(run.output(0).decode(), "step")) > _STEPS_BEFORE

    until(counted, _MOST_S, 0.05)
    time.sleep(rng.uniform(0.0, 1.0))
    return run.state


def _middle(run: SlurmRun, state: RunState) -> str:
    """Return a node with a rank that is not the batch host."""
    host = (job_record(run.job) or {})["BatchHost"]
    return next(rank.node for rank in state.ranks if rank.node != host)


def _next_step(run: SlurmRun, killed: float) -> float:
    """Return when rank 0, started again after the kill, made its first step."""

    def again(state: RunState) -> float:
        if state.ended:
            raise TimeoutError(f"the run ended {state.state}: {state.text}")
        return _step_after(run.output(0).decode(), killed)

    return again(run.wait(again, _MOST_S))


def _step_after(text: str, killed: float) -> float:
    began = [at for _, at in marks(text, "from") if at > killed]
    steps = [at for _, at in marks(text, "step") if began and at > min(began)]
    return min(steps, default=0.0)
