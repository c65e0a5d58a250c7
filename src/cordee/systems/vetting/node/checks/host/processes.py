"""Is a process stuck in the kernel, or does somebody else use the processors?"""

from __future__ import annotations

import os
from time import monotonic, sleep
from typing import Any, Optional

from cordee.machine.processes.table import ProcessUsage, processes, read_process, switches, waits_in
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Context, Parameter, Result

_STUCK_S = 3.0
_PAUSE_S = 0.1
_GREEDY_S = 0.5
_NAMED = 5


class ProcessesCheck(Check):
    """Looks for processes that wait in the kernel (state D) without a break, and for busy ones of other people.

    On a node where no process is in state D and nobody else's is running it ends at once; else it looks again until
    `stuck` seconds are over.
    """

    name = "host.processes"
    title = "Is a process stuck in the kernel, or does somebody else use the processors?"
    parameters = (
        Parameter(
            "stuck", "duration", "how long a process may wait in state D without a break", default=_STUCK_S, unit="s"
        ),
        Parameter(
            "max_foreign_cpu", "number", "processors that other people's processes may use", default=0.5, unit="cores"
        ),
        Parameter("max_zombies", "count", "most dead processes that nobody has collected", default=500),
        Parameter("ignore", "texts", "names of processes that may be in state D"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        proc = context.host("/proc")
        before = processes(proc)
        if not before:
            raise CannotTest(f"no process is seen in {proc}", "closed")
        started = monotonic()
        ours = os.getuid() if context.root == "/" else None
        ignored = set(parameters.get("ignore") or ())
        spared = _relatives(before) if context.root == "/" else set()
        waiting = [
            process
            for process in before.values()
            if process.state == "D" and process.pid not in spared and process.name not in ignored
        ]
        stuck = _stuck(proc, waiting, _patience(parameters["stuck"], context))
        busy = [process for process in before.values() if process.state == "R" and _foreign(process, ours)]
        if busy:
            sleep(max(0.0, min(_GREEDY_S, context.deadline_s / 4) - (monotonic() - started)))
        greedy = _greedy(proc, busy, monotonic() - started, parameters["max_foreign_cpu"])
        zombies = sum(process.state == "Z" for process in before.values())
        if 1 not in before and not stuck:
            raise CannotTest(f"{proc} shows us our own processes only (it is mounted with hidepid)", "closed")
        warnings = list(greedy)
        if zombies > parameters["max_zombies"]:
            warnings.append(
                f"{zombies} dead processes that nobody collects, at most {parameters['max_zombies']} allowed"
            )
        status = "fail" if stuck else "warn" if warnings else "pass"
        return self.result(
            status,
            "; ".join(stuck + warnings) or f"none of {len(before)} processes is stuck in the kernel",
            value=len(stuck),
            unit="stuck processes",
            threshold=0,
            facts={"stuck": stuck, "greedy": greedy, "zombies": zombies},
        )


def _patience(stuck_s: float, context: Context) -> float:
    return max(0.1, min(stuck_s, context.deadline_s * 0.8))


def _stuck(proc: str, candidates: list[ProcessUsage], seconds: float) -> list[str]:
    """Return a line for each process that stays in state D all the time and never runs in between."""
    waiting = [(process, switches(proc, process.pid)) for process in candidates]
    started = monotonic()
    while waiting and monotonic() - started < seconds:
        sleep(_PAUSE_S)
        waiting = [then for then in waiting if _still(proc, *then)]
    lasted = monotonic() - started
    lines = []
    for process, _ in waiting:
        place = waits_in(proc, process.pid)
        where = f" in {place}" if place else ""
        lines.append(f"{process.describe()} has been stuck in the kernel (state D){where} for {lasted:.1f} s")
    return lines if len(lines) <= _NAMED else [*lines[:_NAMED], f"and {len(lines) - _NAMED} more"]


def _still(proc: str, process: ProcessUsage, count: Optional[int]) -> bool:
    now = read_process(proc, process.pid)
    if now is None or now.state != "D" or now.started != process.started or now.ticks != process.ticks:
        return False
    return switches(proc, process.pid) == count


def _relatives(table: dict[int, ProcessUsage]) -> set[int]:
    """Return whatever runs below the process that runs the checks: another check that hangs speaks for itself."""
    found, runner = {os.getpid()}, os.getppid()
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    waiting = [runner] if runner > 1 else []
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def _foreign(process: ProcessUsage, ours: Optional[int]) -> bool:
    """Return whether it is a person's process other than ours: system accounts have numbers below 1000."""
    return 1000 <= process.user < 65534 and process.user != ours


def _greedy(proc: str, busy: list[ProcessUsage], seconds: float, most_cores: float) -> list[str]:
    if not busy or seconds <= 0:
        return []
    per_second = os.sysconf("SC_CLK_TCK") * seconds
    used = []
    for process in busy:
        now = read_process(proc, process.pid)
        if now is not None and now.started == process.started:
            used.append(((now.ticks - process.ticks) / per_second, process))
    total = sum(cores for cores, _ in used)
    if total <= most_cores:
        return []
    used.sort(key=lambda entry: -entry[0])
    named = ", ".join(f"{process.describe()}: {cores:.1f}" for cores, process in used[:_NAMED])
    return [f"processes of other people use {total:.1f} processors, at most {most_cores:g} allowed: {named}"]
