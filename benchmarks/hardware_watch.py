"""Measure what it costs to watch a node's hardware while ranks run.

`python benchmarks/hardware_watch.py [--looks N]` prints a Markdown table: processor time of one look, threads and children included,
and the share of a core that it is at the usual interval. The node is a tree like /sys with eight ports and 24 memory modules,
the kernel log is the machine's own where it may be read; GPUs are eight with 18 links, as their driver would tell.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cordee.core.clock import monotonic
from cordee.machine.gpus.model import Gpu, GpuLink, gpu_document, gpu_of
from cordee.machine.kernel_log import KernelLogTail
from cordee.runs.lane import Lane
from cordee.systems.explain.node.hardware.counters import GpuWatch, NodeCounters
from cordee.systems.explain.node.hardware.kernel import KernelWords
from cordee.systems.explain.node.hardware.watch import NodeFiles
from support.hosts.host_tree import HostTree
from support.hosts.kernel_log import append_kmsg, write_kmsg

_USUAL_BUDGET = 0.001


def used_s(work: Callable[[], object], times: int) -> float:
    """Return the processor time of one piece of work, threads and children included."""

    def now() -> float:
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    work()
    began = now()
    for _ in range(times):
        work()
    return (now() - began) / times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--looks", type=int, default=500)
    looks = parser.parse_args().looks
    with tempfile.TemporaryDirectory() as folder:
        host = HostTree(Path(folder))
        write_kmsg(host.root, [])
        for port in range(8):
            host.infiniband(f"mlx5_{port}")
        for module in range(24):
            host.memory_module(f"mc{module // 8}", module % 8)
        counters, root = NodeCounters(str(host.root)), str(host.root)
        files = NodeFiles("/" if os.access("/dev/kmsg", os.R_OK) else root, 1e9)
        links = [
            GpuLink(link, True, dict.fromkeys(("replay", "recovery", "crc_flit", "crc_data"), 7)) for link in range(18)
        ]
        gpus = [
            Gpu(number, uuid=f"GPU-{number}", ecc_uncorrectable=0, pcie_replays=1, links=links) for number in range(8)
        ]
        watches = [GpuWatch(gpu) for gpu in gpus]
        told = json.dumps([gpu_document(gpu) for gpu in gpus])
        lane = Lane("bench")

        async def in_lane() -> None:
            await asyncio.wrap_future(lane.submit(files.look))

        loop = asyncio.new_event_loop()
        rows = [("kernel log, in its thread", 1.0, used_s(lambda: loop.run_until_complete(in_lane()), looks))]
        rows.append(("ports, memory, processors", 0.1, used_s(lambda: list(counters.look()), looks // 5)))

        def judge() -> None:
            for watch, gpu in zip(watches, map(gpu_of, json.loads(told)), strict=True):
                list(watch.look(gpu, ()))

        rows.append(("eight GPUs with 18 links, told and judged", 0.1, used_s(judge, looks // 5)))
        ask = lambda: subprocess.run(["stat", "-f", folder], stdout=subprocess.DEVNULL, check=True)  # noqa: E731
        rows.append(("one mount asked", 1 / 60, used_s(ask, looks // 20)))
        print("| look | processor time (us) | times a second | share of a core |\n|---|---|---|---|")
        for what, rate, cost in rows:
            print(f"| {what} | {cost * 1e6:.0f} | {rate:.3g} | {cost * rate:.5%} |")
        total = sum(rate * cost for _, rate, cost in rows)
        print(f"| all | | | {total:.5%} (at most {_USUAL_BUDGET:.1%}) |")
        flood(root)
        loop.close()


def flood(root: str) -> None:
    """Print what a look costs while 20,000 lines a second are written."""
    tail, words = KernelLogTail(root), KernelWords("")
    line = "INFO: task python:4711 blocked for more than 122 seconds."
    costs, read, began = [], 0, monotonic()
    for _ in range(10):
        append_kmsg(root, *[line] * 20_000)
        before = time.process_time()
        read += len(list(words.read(tail.new_lines(), {}, {})))
        costs.append(time.process_time() - before)
    seconds = monotonic() - began
    print(
        f"\nA flood of 20,000 lines a look: {max(costs) * 1e3:.1f} ms at most, {read // 10} lines read each ({seconds:.1f} s in all)."
    )


if __name__ == "__main__":
    main()
