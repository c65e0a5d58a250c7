"""What `cordee watch` costs beside a run of 10,752 GPUs that goes on: CPU seconds to begin, and share of a core while it follows.

python benchmarks/watch.py [--gpus 10752] [--seconds 60]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

from rich.console import Console

from cordee.faces.cli.watch.screen import WatchScreen
from cordee.runs.folder import RunFolder
from support.made.runs import MadeRun, follow_run

BEFORE_S = 30


def write(parent: str, gpus: int, seconds: float) -> None:
    """Write a made run that goes on for so many seconds."""
    for _ in follow_run(parent, MadeRun(gpus, BEFORE_S), seconds):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=10752)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    console = Console(width=140, height=50, force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as parent:
        writer = multiprocessing.Process(target=write, args=(parent, given.gpus, given.seconds))
        writer.start()
        while not (found := list(Path(parent).glob("made-*/telemetry/blocks-*.log"))):
            time.sleep(0.5)
        time.sleep(5.0)  # what went before is written
        view = WatchScreen(RunFolder(found[0].parents[1]))
        begun = time.process_time()
        view.read()
        first_s = time.process_time() - begun
        began, cpu, ages = time.monotonic(), time.process_time(), []
        while writer.is_alive() and not view.state.ended:
            time.sleep(2.0)
            view.read()
            with console.capture():
                console.print(view.picture(50, 140))
            if view.samples.rows:
                ages.append(time.time() - max(view.samples.rows[0].history))
        share = (time.process_time() - cpu) / (time.monotonic() - began)
        writer.join()
    print(f"{given.gpus} GPUs: {first_s:.2f} CPU s to begin, then {100 * share:.1f} % of a core")
    print(f"age of the newest sample on the screen, s: median {sorted(ages)[len(ages) // 2]:.1f}, most {max(ages):.1f}")


if __name__ == "__main__":
    main()
