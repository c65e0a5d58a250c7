"""For how long the end of one rank holds the agent's loop up, on a node with thousands of processes, most of them not the run's.

    python benchmarks/rank_end.py --ranks 128 --others 4000

A process of its own is the agent: a subreaper whose tasks are the ranks. Ranks end one after the other; in turn the agent finds
what they left by the lists of children that the kernel keeps, and by a look at all processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time

from cordee.machine.processes import tree as processes
from cordee.machine.tasks.task import Task, TaskRunner

CHILDREN, ALL = "lists of children", "all processes"


async def be_agent(ranks: int, rounds: int) -> dict[str, list[float]]:
    """Run ranks, end some of them one after the other, and return how long each end held the loop up, wall and CPU."""
    processes.become_subreaper()
    ended: asyncio.Queue[str] = asyncio.Queue()
    runner = TaskRunner("bench/node/1", 0, lambda *_: None, lambda task, _: ended.put_nowait(task.id))
    for number in range(ranks):
        argv = (sys.executable, "-c", "import time; time.sleep(1000)")
        runner.start(Task(f"rank-{number}", argv, dict(os.environ), "/", group="ranks"))
    print("ready", flush=True)
    sys.stdin.readline()
    took: dict[str, list[float]] = {f"{way}{what}": [] for way in (CHILDREN, ALL) for what in ("", ", CPU")}
    reap = runner._reap
    for number in range(2 * rounds):
        way = (CHILDREN, ALL)[number % 2]
        runner._lists_children = way == CHILDREN and processes.lists_children()
        runner._next_reap = 0.0
        pid = runner.pid(f"rank-{number}")
        assert pid is not None
        os.kill(pid, 9)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        began, began_cpu = time.perf_counter(), time.thread_time()
        reap()
        took[way].append(time.perf_counter() - began)
        took[f"{way}, CPU"].append(time.thread_time() - began_cpu)
        await ended.get()
    runner.kill_everything()
    return took


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=128)
    parser.add_argument("--others", type=int, default=4000, help="processes that are not the agent's")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        print(json.dumps(asyncio.run(be_agent(options.ranks, options.rounds))))
        return 0
    command = [sys.executable, __file__, "--agent", "--ranks", str(options.ranks), "--rounds", str(options.rounds)]
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdout.readline()
    others = [subprocess.Popen(["sleep", "1000"]) for _ in range(options.others)]
    try:
        told, _ = agent.communicate(b"go\n")
    finally:
        for other in others:
            other.kill()
        for other in others:
            other.wait()
    print(f"{options.ranks} ranks, {options.others} other processes; {options.rounds} ends each, one after the other\n")
    print("| what is looked at | median, ms | longest, ms |\n|---|---|---|")
    for what, took in json.loads(told).items():
        print(f"| {what} | {statistics.median(took) * 1000:.1f} | {max(took) * 1000:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
