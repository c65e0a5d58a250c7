"""Runs on a real Slurm beside plain batch jobs, submitit and torchx; prints Markdown tables.

    pip install submitit; python -m venv torchx-venv && torchx-venv/bin/pip install torchx
    python benchmarks/slurm.py --torchx torchx-venv/bin/python

It puts up disposable clusters of its own: 4 nodes with accounting (submitit needs sacct), and 64 nodes without. All nodes
share one machine. Ways are measured in turn, every other round in the opposite order: trust differences and ratios of pairs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from on_slurm.common import Rows, led_to
from on_slurm.latency import first_line, noticed, submission
from on_slurm.peers import versions
from on_slurm.recovery import recovery
from on_slurm.scale import scale

from cordee.testing.slurm import DisposableSlurm

PARTS = ("first", "submission", "noticed", "recovery", "scale")
_NODES = 4


def main() -> None:
    """Measure the parts that are wanted and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--pairs", type=int, default=12, help="of first lines")
    parser.add_argument("--rounds", type=int, default=10, help="of submissions and ends")
    parser.add_argument("--kills", type=int, default=5, help="of a rank, an agent, a supervisor, a middle node")
    parser.add_argument("--hosts", type=int, default=3, help="of batch hosts, silent nodes and nodes of plain jobs")
    parser.add_argument("--wide", type=int, default=64, help="nodes of the wide run")
    parser.add_argument("--wide-rounds", type=int, default=2)
    parser.add_argument("--torchx", help="a Python interpreter that has torchx; left out without it")
    options = parser.parse_args()
    kills = {"parts": options.kills, "middle": options.kills}
    kills |= dict.fromkeys(("silent", "host10", "host60", "plain", "plain host"), options.hosts)
    narrow: dict[str, Callable[[DisposableSlurm, Path], Rows]] = {
        "first": lambda cluster, parent: first_line(cluster, parent, options.pairs),
        "submission": lambda cluster, parent: submission(cluster, parent, options.rounds, options.torchx),
        "noticed": lambda cluster, parent: noticed(cluster, parent, options.rounds),
        "recovery": lambda cluster, parent: recovery(cluster, parent, kills),
    }
    tables = []
    # A short name: Slurm has sockets below it.
    with tempfile.TemporaryDirectory(prefix="slurm-") as scratch:
        parent = Path(scratch)
        (parent / "runs").mkdir()
        wanted = [part for part in narrow if part in options.only]
        if wanted:
            with DisposableSlurm(parent / "c", nodes=_NODES, accounting=True) as cluster, led_to(cluster, parent):
                tables += [measured(part, lambda part=part: narrow[part](cluster, parent)) for part in wanted]
        if "scale" in options.only:
            tables.append(measured("scale", lambda: scale(parent, options.wide, options.wide_rounds)))
    peers = ", ".join(f"{name} {version}" for name, version in versions(options.torchx).items())
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {peers}\n")
    print("\n".join(tables))


def measured(part: str, measure: Callable[[], Rows]) -> str:
    """Return the table of a part, and say on standard error how long it took."""
    print(f"{part}:", file=sys.stderr, flush=True)
    started = time.monotonic()
    table = measure().table()
    print(f"{part} took {time.monotonic() - started:.0f} s\n\n{table}", file=sys.stderr, flush=True)
    return table


if __name__ == "__main__":
    main()
