"""What a run on HTCondor costs beside a bare job: until its first line, in bytes that travel, and for many runs to be submitted.

Puts up a disposable pool of its own, whose jobs do not see where they come from. Pairs take turns; medians are printed.

usage: python benchmarks/htcondor.py [--pairs 5] [--many 50] [--together 1000]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cordee.testing.htcondor import DisposablePool

_PATIENCE_S = 120.0
_BARE = """\
executable = bare.sh
should_transfer_files = YES
transfer_input_files = train.py
stream_output = True
output = {name}.out
log = {name}.log
request_cpus = 1
request_memory = 512MB
request_disk = 100MB
queue {count}
"""


def wait_for(file: Path, words: str, began: float) -> float:
    """Return the seconds since `began` until a file has these words."""
    while time.monotonic() - began < _PATIENCE_S:
        if file.exists() and words in file.read_text(errors="replace"):
            return time.monotonic() - began
        time.sleep(0.02)
    raise SystemExit(f"no {words!r} in {file} within {_PATIENCE_S:.0f} s")


def bare(folder: Path, name: str) -> float:
    """Return the seconds until the first line of a bare job is at the access point."""
    (folder / f"{name}.sub").write_text(_BARE.format(name=name, count=1))
    began = time.monotonic()
    subprocess.run(["condor_submit", "-terse", f"{name}.sub"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return wait_for(folder / f"{name}.out", "first line", began)


def cordee(folder: Path, name: str) -> tuple[float, int]:
    """Return the seconds until `cordee run` shows the first line, and the bytes that travelled to the machine."""
    shown, began = folder / f"{name}.shown", time.monotonic()
    with open(shown, "wb") as out:
        argv = [
            sys.executable,
            "-m",
            "cordee",
            "run",
            str(folder),
            "--on",
            "htcondor",
            "--runs",
            str(folder.parent / "runs"),
        ]
        run = subprocess.Popen(argv, stdout=out, stderr=subprocess.PIPE, text=True)
    seconds = wait_for(shown, "first line", began)
    said = run.communicate()[1]
    found = re.search(r"cordee: run (\S+)", said)
    if run.returncode or found is None:
        raise SystemExit(said)
    events = (folder.parent / "runs" / found[1] / "submit" / "htcondor.log").read_text()
    return seconds, int(re.findall(r"(\d+)  -  Run Bytes Received By Job", events)[-1])


def many(folder: Path, count: int) -> tuple[float, float]:
    """Return the seconds in which `count` bare jobs are submitted one by one, and as many runs described and submitted."""
    from cordee.job.submit import submitter
    from cordee.job.submit.prepare import create_run, prepare

    (folder / "one.sub").write_text(_BARE.format(name="one", count=1))
    began = time.monotonic()
    for _ in range(count):
        subprocess.run(["condor_submit", "-terse", "one.sub"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    plain_s, began = time.monotonic() - began, time.monotonic()
    place = submitter("htcondor")
    for _ in range(count):
        prepared = prepare(str(folder), "htcondor", {}, folder.parent / "runs")
        place.submit(create_run(prepared), prepared.plan.document())
    return plain_s, time.monotonic() - began


def together(folder: Path, count: int) -> tuple[float, float]:
    """Return the seconds in which `queue COUNT` is submitted, and `cordee run --detach` of a sweep with so many jobs."""
    (folder / "all.sub").write_text(_BARE.format(name="all", count=count))
    began = time.monotonic()
    subprocess.run(["condor_submit", "-terse", "all.sub"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    plain_s = time.monotonic() - began
    sweep = folder.parent / "sweep"
    sweep.mkdir(exist_ok=True)
    (sweep / "train.py").write_text((folder / "train.py").read_text())
    (sweep / "cordee.toml").write_text(
        (folder / "cordee.toml").read_text().replace("train.py", "train.py {lr}")
        + f'[sweep]\njobs = {count}\ntrials = {count}\nsampler = "random"\ngoal = "min loss"\nlr = "0.1..1.0"\n'
    )
    argv = [sys.executable, "-m", "cordee", "run", str(sweep), "--on", "htcondor", "--detach"]
    began = time.monotonic()
    subprocess.run([*argv, "--runs", str(folder.parent / "runs")], check=True, stderr=subprocess.DEVNULL)
    return plain_s, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--many", type=int, default=50)
    parser.add_argument("--together", type=int, default=1000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="condor-work-") as work,
        tempfile.TemporaryDirectory(prefix="condor-") as base,
    ):
        folder = Path(work) / "job"
        folder.mkdir()
        (folder / "train.py").write_text("print('first line', flush=True)\nimport time\ntime.sleep(1)\n")
        (folder / "bare.sh").write_text(f"#!/bin/sh\nexec {sys.executable} train.py\n")
        (folder / "bare.sh").chmod(0o755)
        (folder / "cordee.toml").write_text(
            'name = "b"\nrun = "python train.py"\nvet.max_load = 1000.0\n[need]\nmemory = "512MB"\ndisk = "100MB"\n'
        )
        (Path(work) / "htcondor.toml").write_text('scheduler = "htcondor"\n')
        os.environ["CORDEE_CLUSTERS_PATH"] = work
        with DisposablePool(Path(base) / "pool", hidden=[Path(work)]) as pool:
            os.environ.update(pool.env)
            pairs = [(bare(folder, f"bare-{n}"), *cordee(folder, f"run-{n}")) for n in range(options.pairs)]
            plain, ours, sizes = zip(*pairs, strict=True)
            print(f"first line: bare job {statistics.median(plain):.2f} s, cordee run {statistics.median(ours):.2f} s")
            print(f"  more, in the median of pairs: {statistics.median(b - a for a, b, _ in pairs):.2f} s")
            print(f"bytes to the machine: {statistics.median(sizes):,.0f}")
            for machine in pool.machine_names:
                pool.kill_machine(machine)
            plain_s, ours_s = many(folder, options.many)
            print(f"{options.many} submitted: condor_submit {plain_s:.1f} s, cordee {ours_s:.1f} s")
            pool.clear()
            plain, ours = zip(*(together(folder, options.together) for _ in range(3)), strict=True)
            words = f"condor_submit {statistics.median(plain):.2f} s, cordee run {statistics.median(ours):.1f} s"
            print(f"{options.together} jobs of one submission: {words}")
            pool.clear()


if __name__ == "__main__":
    main()
