"""The queue: a file for each job in `$SPOOL`, whose ending says where the job stands: `waiting`, `running` or `gone`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_POLL_S = 0.05


def spool() -> Path:
    """Return the folder of the queue."""
    return Path(os.environ["SPOOL"])


def job_of(run: str) -> Path | None:
    """Return the file of a run's newest job, None when it has none."""
    return max(
        (path for path in spool().glob(f"*-{run}.*") if path.suffix != ".cancel"),
        key=lambda path: path.name,
        default=None,
    )


def add(run: str, command: list[str]) -> str:
    """Put a job into the queue and return its name."""
    number = 1 + max((int(path.name.partition("-")[0]) for path in spool().glob("*-*.*")), default=0)
    name = f"{number:04d}-{run}"
    new = spool() / f".{name}"
    new.write_text(json.dumps(command))
    new.rename(spool() / f"{name}.waiting")
    return name


def serve() -> None:
    """Run one job after the other, none while there is a file `full`."""
    while True:
        waiting = sorted(spool().glob("*-*.waiting"))
        if not waiting or (spool() / "full").exists():
            time.sleep(_POLL_S)
            continue
        running = waiting[0].with_suffix(".running")
        try:
            waiting[0].rename(running)
        except FileNotFoundError:
            continue  # it was cancelled
        _run(running)
        running.rename(running.with_suffix(".gone"))


def _run(job: Path) -> None:
    env = {**os.environ, "SPOOL_JOB": job.stem}
    process = subprocess.Popen(json.loads(job.read_text()), env=env, stdin=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None:
        if job.with_suffix(".cancel").exists():
            process.send_signal(signal.SIGKILL)
        time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(serve())
