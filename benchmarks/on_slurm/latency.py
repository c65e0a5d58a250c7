"""From sbatch to the first line, how long submitting takes, and when an end is noticed: Cordée beside its peers."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cordee.core.units import parse_utc
from cordee.job.submit import submitter
from cordee.job.submit.prepare import create_run, prepare
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.testing.slurm import DisposableSlurm
from on_slurm import peers
from on_slurm.common import (
    CORDEE,
    PATIENT,
    Rows,
    ended,
    marks,
    plain_script,
    sbatch,
    settings,
    settle,
    text_of,
    until,
    wait_gone,
    write_job,
)

FIRST = """
import os, sys, time
rank = os.environ.get("RANK") or os.environ["SLURM_PROCID"]
sys.stdout.write(f"first {rank} {time.time()}\\n")
sys.stdout.flush()
time.sleep(float(sys.argv[1]))
sys.stdout.write(f"last {rank} {time.time()}\\n")
"""
NEED = "nodes = 2\ncpus_per_rank = 1"
OPTIONS = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1"]
_STAY_S = "0.5"


class Followed:
    """One `cordee run --on slurm` whose output is read as a person sees it.

    Args:
        job: the job's folder.
        runs: the folder of runs.

    Attributes:
        seen: (when it was read, line) for every line of standard output.
        returned: when the command returned, None before.
    """

    def __init__(self, job: Path, runs: Path) -> None:
        before = set(runs.glob("[!.]*"))
        command = [*CORDEE, "run", str(job), "--on", "slurm", "--runs", str(runs), *settings(PATIENT)]
        self.seen: list[tuple[float, str]] = []
        self.returned: float | None = None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.folder = RunFolder(until(lambda: set(runs.glob("[!.]*")) - before).pop())

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append((time.time(), line))
        self.process.wait()
        self.returned = time.time()

    def wait(self) -> None:
        """Wait for the command's end; a run that did not finish is no measurement."""
        self._reader.join(120)
        if self.process.returncode != 0:
            raise RuntimeError(f"{self.folder.root} ended with {self.process.returncode}")

    def event(self, name: str) -> dict[str, str] | None:
        """Return the first event of a kind."""
        return next((event for event in read_journal(self.folder.journal) if event["event"] == name), None)

    def at(self, name: str) -> float:
        """Return when the first event of a kind was written, UTC epoch seconds."""
        event = self.event(name)
        assert event is not None, f"no {name} in {self.folder.root}"
        return parse_utc(event["time"])

    def marks(self, word: str) -> list[tuple[int, float]]:
        """Return the marks among the lines, as the ranks printed them."""
        return marks("".join(line.partition("] ")[2] or line for _, line in self.seen), word)


def first_line(cluster: DisposableSlurm, parent: Path, pairs: int) -> Rows:
    """From sbatch's return to the first line of the program, on two nodes."""
    rows = Rows("From sbatch's return to the first line, 2 nodes")
    job = write_job(parent / "first", FIRST, NEED, words=_STAY_S)
    script = plain_script(job, OPTIONS, words=_STAY_S)
    Followed(job, parent / "runs").wait()  # what Slurm is, is remembered; the first sbatch of a cluster is slow

    def ours() -> None:
        settle(cluster)
        run = Followed(job, parent / "runs")
        run.wait()
        placed, printed = run.at("placed"), sorted(at for _, at in run.marks("first"))
        rows.add("`cordee run`, first rank", printed[0] - placed)
        rows.add("`cordee run`, last rank", printed[-1] - placed)
        rows.add("`cordee run`, first line in the terminal", run.seen[0][0] - placed)

    def plain() -> None:
        settle(cluster)
        identity = sbatch(str(script))
        placed = time.time()
        output = job / f"plain-{identity}.out"
        until(lambda: text_of(output).count("first ") >= 1)
        seen = time.time()
        until(lambda: text_of(output).count("first ") == 2)
        printed = sorted(at for _, at in marks(text_of(output), "first"))
        rows.add("sbatch and srun, first rank", printed[0] - placed)
        rows.add("sbatch and srun, last rank", printed[-1] - placed)
        rows.add("sbatch and srun, first line in the file", seen - placed)

    in_turn([ours, plain], pairs)
    rows.compare("`cordee run`, first rank", "sbatch and srun, first rank")
    rows.compare("`cordee run`, last rank", "sbatch and srun, last rank")
    return rows


def submission(cluster: DisposableSlurm, parent: Path, rounds: int, torchx: str | None) -> Rows:
    """Until the job's id is there, with all nodes taken so that nothing starts meanwhile."""
    rows = Rows("Submission, until the job's id is there")
    job = write_job(parent / "submit", FIRST, NEED, words=_STAY_S)
    script = plain_script(job, OPTIONS, words=_STAY_S)
    create_run(prepare(str(job), "slurm", dict(PATIENT), parent / "runs"))  # modules are imported, Slurm is known
    peers.submitit_seconds(parent / "submitit")
    settle(cluster)
    sbatch(f"--nodes={len(cluster.node_names)}", "--exclusive", "--wrap=sleep 3600", "--output=/dev/null")
    until(lambda: set(cluster.states().values()) == {"ALLOCATED"}, 60)

    def calls() -> None:
        started = time.perf_counter()
        prepared = prepare(str(job), "slurm", dict(PATIENT), parent / "runs")
        planned = time.perf_counter()
        folder = create_run(prepared)
        created = time.perf_counter()
        submitter("slurm").submit(folder, prepared.plan.document())
        done = time.perf_counter()
        rows.add("call: Cordée, all of it (read, check, plan, write the run, submit)", done - started)
        rows.add("call: Cordée, write the run and submit", done - planned)
        rows.add("call: Cordée, submit", done - created)

    def plain() -> None:
        rows.add("command: sbatch", timed(["sbatch", str(script)], parent))

    def command() -> None:
        argv = ["run", str(job), "--on", "slurm", "--detach", "--runs", str(parent / "runs"), *settings(PATIENT)]
        rows.add("command: cordee run --detach", timed([*CORDEE, *argv], parent))

    def submitit_call() -> None:
        rows.add("call: submitit", peers.submitit_seconds(parent / "submitit"))

    def submitit_command() -> None:
        rows.add(
            "command: a submitit script", timed([sys.executable, peers.__file__, str(parent / "submitit")], parent)
        )

    def torchx_call() -> None:
        rows.add("call: torchx", peers.torchx_seconds(str(torchx), job / "train.py", parent))

    def torchx_command() -> None:
        rows.add("command: torchx run", timed(peers.torchx_command(str(torchx), job / "train.py"), parent))

    ways = [plain, calls, command, submitit_call, submitit_command]
    in_turn(ways + ([torchx_call, torchx_command] if torchx else []), rounds)
    rows.compare("call: Cordée, write the run and submit", "call: submitit")
    rows.compare("call: Cordée, write the run and submit", "call: torchx")
    rows.compare("command: cordee run --detach", "command: sbatch")
    rows.compare("command: cordee run --detach", "command: torchx run")
    settle(cluster)
    return rows


def noticed(cluster: DisposableSlurm, parent: Path, rounds: int) -> Rows:
    """From the last rank's last line to where its end is seen."""
    rows = Rows("An end is noticed: seconds after the last rank's last line, 2 nodes")
    rng = random.Random(3)  # lengths differ, so that nobody's polling falls into step

    def ours(stay: str) -> None:
        job = write_job(parent / "end", FIRST, NEED, words=stay)
        run = Followed(job, parent / "runs")
        placed = until(lambda: run.event("placed"))
        gone = wait_gone(placed["job"])
        run.wait()
        last = max(at for _, at in run.marks("last"))
        assert run.returned is not None
        rows.add("Cordée: `ended` in the journal", run.at("ended") - last)
        rows.add("`cordee run` has returned, report rendered", run.returned - last)
        rows.add("Cordée: squeue shows the job gone", gone - last)

    def plain(stay: str) -> None:
        job = write_job(parent / "end", FIRST, NEED, words=stay)
        script = plain_script(job, OPTIONS, words=stay)
        command = ["sbatch", "--wait", "--parsable", str(script)]
        with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
            assert process.stdout is not None
            identity = process.stdout.readline().strip()
            gone = wait_gone(identity)
            process.wait(120)
            returned = time.time()
        last = max(at for _, at in marks(text_of(job / f"plain-{identity}.out"), "last"))
        rows.add("`sbatch --wait` has returned", returned - last)
        rows.add("sbatch and srun: squeue shows the job gone", gone - last)

    def submitit(stay: str) -> None:
        rows.add(
            "submitit: `job.wait()`, its own polling", peers.submitit_end_seconds(parent / "submitit", float(stay))
        )

    def measured(way: Callable[[str], None]) -> Callable[[], None]:
        def once() -> None:
            settle(cluster)
            way(f"{rng.uniform(1.0, 4.0):.2f}")

        return once

    in_turn([measured(ours), measured(plain), measured(submitit)], rounds)
    rows.compare("Cordée: `ended` in the journal", "submitit: `job.wait()`, its own polling")
    rows.compare("Cordée: squeue shows the job gone", "sbatch and srun: squeue shows the job gone")
    return rows


def in_turn(ways: list[Callable[[], None]], rounds: int) -> None:
    """Measure each way once per round, every other round in the opposite order."""
    for index in range(rounds):
        for way in ways if index % 2 == 0 else reversed(ways):
            way()


def timed(command: list[str], cwd: Path) -> float:
    """Return the seconds that a whole command takes."""
    started = time.perf_counter()
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started
