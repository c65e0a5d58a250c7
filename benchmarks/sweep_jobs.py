"""Count the jobs of a sweep of 1,000 trials on a disposable Slurm, and what its parts and a client that waits ask the scheduler.

    python benchmarks/sweep_jobs.py --trials 1000 --jobs 10

Each of Slurm's commands is a script that notes its call and becomes the real one. Calls are counted over the minutes in which trials run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cordee.testing.slurm import DisposableSlurm
from cordee.testing.slurm.daemons import clean_environment

COMMANDS = ("sbatch", "squeue", "scontrol", "sacct", "sinfo", "scancel", "srun", "sprio", "sshare")
ASKED = ("squeue", "scontrol", "sacct", "sinfo", "sprio", "sshare")
JOB = """
name = "many"
run = "sh trial.sh {{number}} {{x}}"
[need]
nodes = 1
[vet]
max_load = 1000.0
[sweep]
x = "0.0..1.0"
goal = "min loss"
trials = {trials}
jobs = {jobs}
result = "results/{{number}}.json"
"""


def noted(folder: Path) -> Path:
    """Return a folder with commands that note their calls."""
    place = folder / "bin"
    place.mkdir()
    for name in COMMANDS:
        real = shutil.which(name)
        if real:
            script = place / name
            script.write_text(f'#!/bin/sh\necho "$(date +%s) {name} $*" >> {folder}/calls\nexec {real} "$@"\n')
            script.chmod(0o755)
    return place


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds of a trial")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cordee-sj-"))
    (folder / "results").mkdir()
    (folder / "trial.sh").write_text(f"sleep {options.pause}\necho $2 > results/$1.json\n")
    (folder / "cordee.toml").write_text(JOB.format(trials=options.trials, jobs=options.jobs))
    with DisposableSlurm(folder / "slurm", nodes=4) as cluster:
        env = {**clean_environment(), **cluster.env}
        env["PATH"] = f"{noted(folder)}{os.pathsep}{env['PATH']}"
        command = [sys.executable, "-m", "cordee.faces.cli", "run", "--on", "slurm", "--json"]
        began = time.time()
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        minutes = (time.time() - began) / 60
    if done.returncode:
        raise SystemExit(done.stderr)
    run = json.loads(done.stdout)
    show = [sys.executable, "-m", "cordee.faces.cli", "sweep", "show", run["folder"], "--json"]
    states = Counter(one["state"] for one in json.loads(subprocess.check_output(show, cwd=folder))["trials"])
    calls = Counter(line.split()[1] for line in (folder / "calls").read_text().splitlines())
    print(
        f"{options.trials} trials: {dict(states)}; {calls['sbatch']} jobs; {minutes:.1f} min, load {os.getloadavg()[0]:.1f}"
    )
    print(
        f"calls: {dict(calls)}; asked: {sum(calls[name] for name in ASKED) / minutes:.2f} a minute over all jobs and the client"
    )
    print((folder / "calls").read_text()[:4000], file=sys.stderr)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
