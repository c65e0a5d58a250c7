"""Measure one call of `cordee.log` and `cordee.stopping`: median of blocks of calls, in and outside a run.

`python benchmarks/client_log.py` prints a Markdown table.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BLOCKS, CALLS = 60, 500


def microseconds(call: Callable[[int], object], after: Callable[[], object]) -> tuple[float, float]:
    """Return median and 99th percentile of the blocks' mean time of a call, in microseconds."""
    times = []
    for block in range(BLOCKS):
        start = time.perf_counter()
        for step in range(block * CALLS, (block + 1) * CALLS):
            call(step)
        times.append((time.perf_counter() - start) / CALLS * 1e6)
        after()
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def measure() -> None:
    """Print rows for this process: with a channel when CORDEE_CHANNEL names one."""
    import cordee
    from cordee.wire.channel import ChannelReader

    path = os.environ.get("CORDEE_CHANNEL")
    reader = ChannelReader(path) if path else None

    def drain() -> None:
        if reader is not None:
            reader.acknowledge(reader.read(CALLS * 2)[1])

    place = "in a run" if path else "outside a run"
    four = {"loss": 1.234567, "tokens_per_s": 81234.5, "lr": 3e-4, "grad_norm": 0.987654321}
    calls: dict[str, Callable[[int], object]] = {
        "cordee.log, 4 values": lambda step: cordee.log(step=step, **four),
        "cordee.log, 1 value": lambda step: cordee.log(step=step, loss=1.234567),
        "cordee.stopping": cordee.stopping,
        "an empty function": lambda step: None,
    }
    for name, call in calls.items():
        median, p99 = microseconds(call, drain)
        print(f"| {name} | {place} | {median:.2f} | {p99:.2f} |", flush=True)
    if reader is not None and reader.dropped:
        raise SystemExit(f"{reader.dropped} events were dropped: the numbers above are worthless")


def main() -> None:
    """Run both places in fresh processes, so that neither has the other's state."""
    from cordee.wire.channel import create_channel

    print("| call | place | median of blocks, µs | 99th percentile, µs |\n|---|---|---|---|", flush=True)
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        channel = Path(folder) / "1-0.channel"
        create_channel(channel)
        environment = {key: value for key, value in os.environ.items() if key != "CORDEE_CHANNEL"}
        for extra in ({"CORDEE_CHANNEL": str(channel)}, {}):
            subprocess.run([sys.executable, __file__, "here"], check=True, env={**environment, **extra})


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["here"] else main()
