"""Is somebody else using this node's CPUs?"""

from __future__ import annotations

import os
from time import monotonic, sleep
from typing import Any

from cordee.machine.processes.table import processes
from cordee.systems.vetting.node.checks._base import Check, Context, Parameter, Result

_BUSY_RATIO = 2.0
_LOOK_S = 0.3
_NAMED, _LEAST_CORES = 3, 0.1


class LoadCheck(Check):
    """Compares the load of the last minute per core with `max_ratio` where one is given; above `warn_ratio` the machine is busy.

    What a busy machine measures says little of it: the result is unknown with the cause `busy`, which is held against nobody.
    Without a `warn_ratio` that is above 2.0, or never below a given `max_ratio`.
    """

    name = "host.load"
    title = "Is somebody else using this node's CPUs?"
    parameters = (
        Parameter("max_ratio", "number", "highest load of the last minute", unit="load per core"),
        Parameter("warn_ratio", "number", "load above which the machine is busy", unit="load per core"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        cores = os.cpu_count()
        if not cores:
            return self.result("unknown", "the number of cores cannot be read", cause="closed")
        load = os.getloadavg()[0]
        ratio = load / cores
        limit = parameters.get("max_ratio")
        warn = parameters.get("warn_ratio") or limit or _BUSY_RATIO
        status = "fail" if limit is not None and ratio > limit else "unknown" if ratio > warn else "pass"
        evidence = f"load {load:.2f} on {cores} cores"
        if status != "pass":
            evidence = f"the machine is busy: {evidence}{_by_what(context)}"
        return self.result(
            status,
            evidence,
            value=round(ratio, 3),
            unit="load per core",
            threshold=limit if status == "fail" else warn,
            cause="busy" if status == "unknown" else None,
        )


def _by_what(context: Context) -> str:
    """Return in words which processes use the processors now, the greediest first."""
    proc = context.host("/proc")
    before, began = processes(proc), monotonic()
    sleep(min(_LOOK_S, context.deadline_s / 4))
    now = processes(proc)
    per_core = os.sysconf("SC_CLK_TCK") * max(1e-3, monotonic() - began)
    used = [
        ((process.ticks - before[pid].ticks) / per_core, process)
        for pid, process in now.items()
        if pid in before and before[pid].started == process.started
    ]
    greedy = sorted((entry for entry in used if entry[0] >= _LEAST_CORES), key=lambda entry: -entry[0])
    named = ", ".join(f"{process.describe()}: {cores:.1f} cores" for cores, process in greedy[:_NAMED])
    waiting = sum(process.state == "D" for process in now.values())
    stuck = f"; {waiting} processes wait in the kernel (state D)" if waiting else ""
    return f" by {named}{stuck}" if named else stuck
