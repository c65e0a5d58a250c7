"""A run on 64 nodes that are 64 slurmd on one machine: it starts, vets, ends; what its agents take."""

from __future__ import annotations

import time
from pathlib import Path

from cordee.core.units import parse_utc
from cordee.runs.state import RunState
from cordee.testing.slurm import DisposableSlurm
from on_slurm.common import Rows, led_to, marks, plain_script, sbatch, settle, text_of, until, wait_gone, write_job
from on_slurm.latency import FIRST
from support.runs.real_run import SlurmRun

_MOST_S = 600.0
# All agents start at once on the few cores of one machine: they come later than the 30 s that a cluster gets.
_PATIENCE = {"timeouts__connect": 300.0, "timeouts__lost": 60.0, "timeouts__orphan": 120.0}


def scale(parent: Path, nodes: int, rounds: int) -> Rows:
    """Run once per round on all nodes, beside plain sbatch and srun on the same nodes."""
    rows = Rows(f"{nodes} nodes, each one rank")
    with DisposableSlurm(parent / "wide", nodes=nodes, cpus=2, memory_mb=2000) as cluster, led_to(cluster, parent):
        for _ in range(rounds):
            settle(cluster)
            _ours(parent, nodes, rows)
            settle(cluster)
            _plain(parent, nodes, rows)
    return rows


def _ours(parent: Path, nodes: int, rows: Rows) -> None:
    job = write_job(parent / "wide-job", FIRST, f"nodes = {nodes}\ncpus_per_rank = 1", words="30")
    with SlurmRun(job, parent / "runs", vet__max_load=1000.0, **_PATIENCE) as run:
        placed = _at(run, "placed")
        state = run.wait(lambda state: all_running(state, nodes), _MOST_S)
        until(lambda: run.output().count(b"first ") == nodes, _MOST_S, 0.2)
        time.sleep(5)
        agents = [pss_bytes(run.pid(f"agent {node.node}")) for node in state.nodes]
        supervisor = pss_bytes(run.pid("supervisor"))
        gone = wait_gone(run.job, _MOST_S)
        state = run.wait_end(_MOST_S)
        if state.state != "finished":
            raise RuntimeError(f"it ended {state.state}: {state.text}")
        text = run.output().decode()
        first, last = (sorted(at for _, at in marks(text, word)) for word in ("first", "last"))
        verdicts = [node.verdict for node in state.nodes]
        vetted = _at(run, "nodes_chosen")
        rows.add("from sbatch's return until the supervisor is there", _at(run, "supervisor_started") - placed)
        connected = [parse_utc(event["time"]) for event in run.events("node_connected")]
        rows.add("until all agents are connected", max(connected) - placed)
        rows.add("until all nodes are vetted", vetted - placed)
        rows.add("until the first rank's first line", first[0] - placed)
        rows.add("until the last rank's first line", first[-1] - placed)
        rows.add("from the last rank's last line to `ended`", _at(run, "ended") - last[-1])
        rows.add("from the last rank's last line until squeue shows the job gone", gone - last[-1])
    rows.notes.append(
        f"{verdicts.count('healthy')} of {nodes} nodes healthy, {state.restarts} restarts; memory that agents share counted "
        f"once (PSS): {sum(agents) / 1e6:.0f} MB for all agents, {max(agents) / 1e6:.1f} MB for the largest; "
        f"supervisor {supervisor / 1e6:.0f} MB"
    )


def _plain(parent: Path, nodes: int, rows: Rows) -> None:
    job = write_job(parent / "wide-job", FIRST, f"nodes = {nodes}", words="30")
    script = plain_script(job, [f"--nodes={nodes}", "--ntasks-per-node=1", "--cpus-per-task=1"], words="30")
    identity = sbatch(str(script))
    placed = time.time()
    gone = wait_gone(identity, _MOST_S)
    text = text_of(job / f"plain-{identity}.out")
    first, last = (sorted(at for _, at in marks(text, word)) for word in ("first", "last"))
    if len(first) != nodes:
        raise RuntimeError(f"{len(first)} of {nodes} plain tasks printed: {text[-1000:]}")
    rows.add("sbatch and srun: until the first rank's first line", first[0] - placed)
    rows.add("sbatch and srun: until the last rank's first line", first[-1] - placed)
    rows.add("sbatch and srun: from the last line until squeue shows the job gone", gone - last[-1])


def all_running(state: RunState, nodes: int) -> bool:
    """Return whether every rank runs; a run that has ended never will."""
    if state.ended:
        raise RuntimeError(f"it ended {state.state}: {state.text}")
    return len(state.ranks) == nodes and all(rank.status != "starting" for rank in state.ranks)


def pss_bytes(pid: int) -> int:
    """Return a process' memory in bytes, what it shares with others divided among them."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


def _at(run: SlurmRun, name: str) -> float:
    """Return when the first event of a kind was written, UTC epoch seconds."""
    return parse_utc(run.events(name)[0]["time"])
