"""Thousands of nodes fall silent at one moment: the longest that a supervisor's decisions hold up its loop, whole and in parts.

    python benchmarks/node_burst.py --nodes 10000

The real decisions about nodes, the real machines that carry them out, and the real journal on the disk; what a lost node makes happen
elsewhere (vetting, telemetry, the attempt) is left out. CPU seconds of one callback count; the two ways take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cordee.control.supervisor.agents import Agents
from cordee.control.supervisor.decisions import nodes as deciding
from cordee.control.supervisor.decisions.vocabulary import (
    AgentCame,
    AgentLost,
    FindGone,
    LookedAt,
    Prepare,
    ReplaceAgent,
)
from cordee.control.supervisor.machines import Machines
from cordee.core.clock import monotonic
from cordee.runs.journal import JournalWriter
from cordee.runs.lane import Lane
from cordee.wire import messages

LOST_S = 20.0


def burst(count: int, at_once: int, folder: Path) -> tuple[float, float, int]:
    """Return CPU seconds of the longest callback and of all, and how many callbacks it took to lose all nodes."""
    deciding.LOST_AT_ONCE = at_once
    return asyncio.run(_burst(count, folder))


async def _burst(count: int, folder: Path) -> tuple[float, float, int]:
    decided = deciding.Nodes([f"n{index}" for index in range(count)], 1, 1, LOST_S)
    machines = Machines(lambda machine, error: False)
    journal = JournalWriter(folder, "supervisor-1", 1, lane=Lane("journal"))
    place: Any = SimpleNamespace(address_of=lambda connection: "10.0.0.1")
    agents = Agents(machines, decided, journal, place, lambda: None, lambda: None, lambda error: None)
    lost: list[str] = []
    ignored: Any = dict.fromkeys((Prepare, FindGone, ReplaceAgent), lambda command: None)
    machines.doings.update({**ignored, AgentLost: lambda command: lost.append(command.node)})
    connection: Any = SimpleNamespace(send=lambda message, body: True, abort=lambda reason: None)
    now = monotonic()
    for index in range(count):
        hello = messages.Hello(1, index + 1, 1, "h", "3", messages.Slots(), 0, 0, ())
        agents.happened(AgentCame(now - LOST_S - 1, f"n{index}", connection, hello, "10.0.0.1", None))
    await journal.durable()
    took: list[float] = []
    happened = machines.happened

    def timed(machine: Any, event: Any) -> None:
        began = time.thread_time()
        happened(machine, event)
        took.append(time.thread_time() - began)

    machines.happened = timed  # type: ignore[method-assign]
    agents.happened(LookedAt(now, frozenset()))
    while len(lost) < count:
        await asyncio.sleep(0)
    await journal.durable()
    assert lost == list(decided.by_name)
    return max(took), sum(took), len(took)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ways = {"whole": options.nodes, "in parts": deciding.LOST_AT_ONCE}
    seen: dict[str, list[tuple[float, float, int]]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way, at_once in ways.items():
            with tempfile.TemporaryDirectory(prefix="burst-") as folder:
                seen[way].append(burst(options.nodes, at_once, Path(folder)))
    print("| way | callbacks | longest, ms of CPU: median (all) | all of them, ms of CPU: median |\n|---|---|---|---|")
    for way, results in seen.items():
        longest = [1000 * one[0] for one in results]
        every = ", ".join(f"{one:.1f}" for one in longest)
        total = statistics.median(1000 * one[1] for one in results)
        print(f"| {way} | {results[0][2]} | {statistics.median(longest):.1f} ({every}) | {total:.0f} |")
    whole, parts = (statistics.median(one[0] for one in seen[way]) for way in ways)
    print(f"\nlongest in parts / longest whole: {parts / whole:.3f}")


if __name__ == "__main__":
    main()
