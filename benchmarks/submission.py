"""How long submitting takes: a run folder written and handed over, beside submitit's local executor.

    pip install submitit && python benchmarks/submission.py --rounds 10

Cordée also plans, checks, snapshots the code and copies its node side; submitit pickles a function.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from cordee.job.submit import submitter
from cordee.job.submit.prepare import create_run, prepare
from support.runs.real_run import LocalRun


def main() -> None:
    """Measure in turn and print a table."""
    import submitit

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as scratch:
        job = Path(scratch) / "job"
        job.mkdir()
        (job / "cordee.toml").write_text('name = "b"\nrun = "true"\n')
        LocalRun(job, Path(scratch) / "warm")
        for _ in range(rounds):
            started = time.perf_counter()
            prepared = prepare(str(job), "local", {}, Path(scratch) / "runs")
            folder = create_run(prepared)
            submitter("local").submit(folder, prepared.plan.document())
            ours.append(time.perf_counter() - started)
            while submitter("local").active(folder):
                time.sleep(0.05)
            started = time.perf_counter()
            handle = submitit.LocalExecutor(folder=Path(scratch) / "submitit").submit(int, 1)
            theirs.append(time.perf_counter() - started)
            handle.result()
    print("| submission | median ms | least | most |\n|---|---|---|---|")
    for name, values in (("cordee", ours), ("submitit, local executor", theirs)):
        print(f"| {name} | {statistics.median(values) * 1e3:.0f} | {min(values) * 1e3:.0f} | {max(values) * 1e3:.0f} |")
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    print(f"| ratio cordee / submitit | {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |")


if __name__ == "__main__":
    main()
