"""Kills pairs and triples of a training's processes at once, at random moments, again and again: each run must end right.

    python benchmarks/kill_groups.py --kills 200 --results local.jsonl
    python benchmarks/kill_groups.py --kills 100 --slurm 16 --results slurm.jsonl

Each run is a training of 2 nodes x 2 ranks whose ranks sum their gradients over TCP, so that the weights depend on every step of
every rank. While it trains, three groups of two or three of its processes are killed with SIGKILL: ranks, agents, supervisor,
and the keeper; on Slurm the batch script and the srun of the agents in its place, on a real Slurm of so many nodes on this machine.
A group is killed once keeper or script and supervisor live. Where all who could bring a run back were killed, `cordee resume` does, and
that is counted.
A run must finish with the weights of an undisturbed one, bit for bit, and leave no process, no port and nothing in /dev/shm.

One line of JSON a run: where the file is there already, the seeds in it are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kill_campaign
from kill_campaign import campaign, seeds_of
from on_slurm.common import led_to

from cordee.core.errors import CordeeError
from cordee.machine.node_folder import memory_places, name_of_user
from cordee.runs.state import RunState
from cordee.testing.slurm import DisposableSlurm
from support.runs.real_run import LocalRun, SlurmRun

# Holds at the last step but one until there is a gate, so that what befalls it finds it training.
TRAINING = """
import hashlib, json, math, os, pathlib, socket, sys, time
import cordee
steps, pause, gate = int(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(place)
    peers = {}
    while len(peers) < world - 1:
        peer = server.accept()[0].makefile("rwb")
        peers[int(peer.readline())] = peer
    server.close()
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            link = socket.create_connection(place, 60)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    link.settimeout(None)
    root = link.makefile("rwb")
    root.write(b"%d\\n" % rank); root.flush()

def summed(mine, go_on):
    if rank:
        root.write(json.dumps([x.hex() for x in mine]).encode() + b"\\n"); root.flush()
        total, go_on = json.loads(root.readline())
        return [float.fromhex(x) for x in total], go_on
    total = mine
    for number in sorted(peers):
        total = [a + float.fromhex(b) for a, b in zip(total, json.loads(peers[number].readline()))]
    for peer in peers.values():
        peer.write(json.dumps([[x.hex() for x in total], go_on]).encode() + b"\\n"); peer.flush()
    return total, go_on

weights, start = [0.01 * n for n in range(16)], 0
if os.environ.get("CORDEE_RESUME_FROM"):
    saved = json.loads(pathlib.Path(os.environ["CORDEE_RESUME_FROM"]).read_text())
    weights, start = [float.fromhex(x) for x in saved["weights"]], saved["next"]
folder = pathlib.Path(os.environ["CORDEE_CHECKPOINT_DIR"])
step = start
while step < steps:
    gradient, go_on = summed([math.sin(w * 3 + step + 7 * rank) for w in weights], step < steps - 1 or gate.exists())
    time.sleep(pause)
    if not go_on:
        continue
    weights = [w - 0.01 * g for w, g in zip(weights, gradient)]
    cordee.log(step=step, steps=steps, loss=sum(weights))
    step += 1
    if rank == 0 and step % 5 == 0:
        partial = folder / f".partial-{os.getpid()}"
        partial.write_text(json.dumps({"next": step, "weights": [w.hex() for w in weights]}))
        partial.rename(folder / f"step-{step:06d}")
print("weights", hashlib.sha256(json.dumps([w.hex() for w in weights]).encode()).hexdigest(), flush=True)
"""
STEPS, PAUSE_S = 120, 0.03
GROUPS = 3
_LONGEST_S = 420.0
# Agents wait so long, and Slurm a while, before a run comes back.
_LONE_S = 60.0
_GONE_S = 60.0


class Scene:
    """Where runs are made and killed.

    Args:
        parent: a scratch folder.
        make: makes a run of a job's folder below a folder of runs.
        singles: parts of which there is one.
    """

    def __init__(self, parent: Path, make: Callable[[Path, Path], LocalRun], singles: list[str]) -> None:
        self._parent, self._make, self._singles = parent, make, singles
        self._made = 0

    def run(self, seed: int | None) -> dict[str, Any]:
        """Run a training; with a seed, kill groups of its processes. Returns what happened."""
        self._made += 1
        place = self._parent / f"{self._made}"
        (place / "job").mkdir(parents=True)
        gate = place / "gate"
        (place / "job" / "train.py").write_text(TRAINING)
        (place / "job" / "cordee.toml").write_text(
            f'name = "groups"\nrun = "python train.py {STEPS} {PAUSE_S} {gate}"\n'
            "[need]\nnodes = 2\nranks_per_node = 2\ncpus_per_rank = 1\n[restart]\nretries = 100000\n"
        )
        began, killed, wrong, resumed = time.monotonic(), [], [], 0
        with self._make(place / "job", place / "runs") as run:
            try:
                run.wait_training()
                if seed is not None:
                    killed = self.befall(run, random.Random(seed))
                gate.touch()
                state, resumed = ended(run)
                if (state.state, state.exit_code) != ("finished", 0):
                    wrong.append(f"it ended {state.state}: {state.text}")
            except TimeoutError as error:
                wrong.append(str(error)[:4000])
                state = run.state
            wrong += left_behind(run)
            lines = [line for line in run.output(0).decode().split("\n") if line.startswith("weights ")]
        return {
            "seed": seed,
            "killed": killed,
            "weights": lines[-1].split()[1] if lines else None,
            "attempts": state.attempt,
            "epochs": state.epoch,
            "segments": state.segments,
            "resumed": resumed,
            "seconds": round(time.monotonic() - began, 1),
            "run": str(run.folder.root),
            "wrong": wrong,
        }

    def befall(self, run: LocalRun, rng: random.Random) -> list[list[str]]:
        """Do to a training what is to be done to it; return that in words, group by group."""
        killed = []
        for _ in range(GROUPS):
            time.sleep(rng.uniform(0.1, 4.0))
            group = self._group(run, rng)
            for _, pid in group:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if group:
                killed.append([part for part, _ in group])
        return killed

    def _group(self, run: LocalRun, rng: random.Random) -> list[tuple[str, int]]:
        """Return two or three parts that live now; on a busy machine they may be a while in coming."""
        wanted, deadline = rng.choice((2, 3)), time.monotonic() + 60.0
        while time.monotonic() < deadline:
            state = run.state
            agents = [f"agent {node.node}" for node in state.nodes]
            ranks = [f"rank {rank.rank}" for rank in state.ranks if rank.status == "running"]
            parts = [(part, pid_of(run, part)) for part in [*self._singles, *agents, *ranks]]
            living = [(part, pid) for part, pid in parts if pid]
            # Where those that bring back the others are killed before they could, nobody is left to do so.
            led = all(pid for part, pid in parts if part in ("keeper", "script", "supervisor"))
            if led and len(living) >= wanted:
                return rng.sample(living, wanted)
            time.sleep(0.2)
        return []


def ended(run: LocalRun) -> tuple[RunState, int]:
    """Wait for the end of a run; one that has nobody left to bring it back is resumed. Returns its state and how often.

    Raises:
        TimeoutError: it does not end.
    """
    resumed, deadline = 0, time.monotonic() + _LONGEST_S
    while True:
        try:
            return run.wait_end(_LONE_S), resumed
        except TimeoutError:
            if time.monotonic() > deadline:
                raise
        if run.place.active(run.folder):
            continue
        _cordee("show", str(run.folder.root))  # ends what its scheduler has let go of
        if _cordee("resume", str(run.folder.root), "--detach") == 0:
            resumed += 1


def _cordee(*arguments: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "cordee.faces.cli", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=sys.stderr,
        check=False,
    ).returncode


def pid_of(run: LocalRun, part: str) -> int:
    """Return the pid of a part of a run, 0 when it does not live."""
    try:
        pid = run.pid(part)
    except (CordeeError, OSError, StopIteration, KeyError):
        return 0
    return pid if pid > 1 and os.path.exists(f"/proc/{pid}") else 0


def left_behind(run: LocalRun) -> list[str]:
    """Return what of a run that is over is still there after a while."""
    deadline, left = time.monotonic() + _GONE_S, ["?"]
    while left and time.monotonic() < deadline:
        left = [f"process {pid}: {_command(pid)}" for pid in run.processes()]
        places = [place / name for place in memory_places() for name in _names(place)]
        left += [f"{path} is there" for place in places for path in place.glob(f"{run.folder.id}*")]
        left += _listening(run)
        time.sleep(0.2)
    return left


def _names(place: Path) -> list[str]:
    return [name for name in os.listdir(place) if name.startswith(name_of_user())]


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    return "gone"


def _listening(run: LocalRun) -> list[str]:
    try:
        document = json.loads(run.folder.rendezvous.read_text())
        with socket.create_connection((document["address"], document["port"]), 1.0):
            return [f"{document['address']}:{document['port']} is open"]
    except (OSError, ValueError):
        return []


@contextlib.contextmanager
def scene_of(options: argparse.Namespace, parent: Path) -> Iterator[Scene]:
    """Yield the scene: this machine, or a Slurm on it."""
    patient = {"vet__max_load": 1000.0, "timeouts__lost": 8.0}
    if not options.slurm:
        yield Scene(parent, lambda job, runs: LocalRun(job, runs, **patient), ["keeper", "supervisor"])
        return
    patient["timeouts__orphan"] = 10.0
    # Agents that are told to end need a moment to have the job requeued; Slurm gives 30 s where a site has not changed it.
    settings = {"SlurmdTimeout": "60", "MessageTimeout": "30", "KillWait": "15"}
    with DisposableSlurm(parent / "c", nodes=options.slurm, settings=settings) as cluster, led_to(cluster, parent):
        yield Scene(parent, lambda job, runs: SlurmRun(job, runs, **patient), ["script", "srun", "supervisor"])


def main() -> int:
    """Run the campaign; exit code 1 when a run did not end right."""
    options = kill_campaign.options(__doc__, 200, "kill-groups.jsonl").parse_args()
    with scene_of(options, Path(tempfile.mkdtemp(prefix="kills-"))) as scene:
        done = campaign(scene.run, options)
    groups = [group for one in done for group in one["killed"]]
    parts = Counter(part.split()[0] for group in groups for part in group)
    print("| what | how many |\n|---|---|")
    print(f"| runs | {len(done)} |\n| groups killed: pairs, triples | {_of_size(groups, 2)}, {_of_size(groups, 3)} |")
    print("".join(f"| killed: {part} | {count} |\n" for part, count in parts.most_common()), end="")
    print(f"| attempts, supervisors | {sum(o['attempts'] for o in done)}, {sum(o['epochs'] for o in done)} |")
    print(
        f"| runs with nobody left, which `cordee resume` brought to their end | {sum(o['resumed'] > 0 for o in done)} |"
    )
    print(f"| runs that did not end right | {seeds_of(done)} |")
    return 1 if any(one["wrong"] for one in done) else 0


def _of_size(groups: list[list[str]], size: int) -> int:
    return sum(len(group) == size for group in groups)


if __name__ == "__main__":
    sys.exit(main())
