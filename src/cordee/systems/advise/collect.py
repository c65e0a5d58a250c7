"""Collects what advice is given from: the run's folder, its place, and the disks that it writes to."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cordee.backends.facts import GONE, HELD, SUSPENDED, SchedulerFacts
from cordee.backends.reasons.situation import DiskFacts, MemoryFacts, Situation, StuckChild
from cordee.core.backends import abilities
from cordee.core.backends import backend as back_end
from cordee.core.errors import CordeeError
from cordee.core.parts import load
from cordee.core.units import parse_utc
from cordee.job.submit import plan_of, submitter, submitter_of
from cordee.job.submit.parent import open_children
from cordee.machine.foreign_files import read_json
from cordee.runs.children import child_folder, read_graph
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.log_tails import last_lines, output_mask, plain
from cordee.runs.logframes import LogReader
from cordee.runs.state import RunState, replay

_LAST_LINES = 60
# How children do not go on, the worst first.
_STUCK = ("held", "failed", "suspended", "waiting")
_MOST_STUCK = 3
_SETUP = -1
_KILLED = re.compile(r"Killed process (\d+)")


def collect_situation(folder: RunFolder) -> Situation:
    """Return everything that is known of why a run waits or failed; what cannot be known is named.

    Raises:
        RunFolderError: the journal cannot be read.
    """
    events = read_journal(folder.journal)
    state, now = replay(events, folder.id), time.time()
    unknown: list[str] = []
    plan = _plan(folder, unknown)
    scheduler = _scheduler(folder, plan, state)
    stuck, more_stuck = _stuck(folder, state, unknown)
    return Situation(
        folder.id,
        state,
        plan,
        scheduler,
        _output(folder, state, unknown),
        () if state.ended else last_lines(folder.control / "supervisor.log"),
        _memory(folder, plan, state, unknown),
        tuple(_disks(folder, plan)),
        now,
        max(0.0, now - max((parse_utc(event["time"]) for event in events), default=now)),
        tuple(unknown),
        stuck,
        more_stuck,
    )


def _plan(folder: RunFolder, unknown: list[str]) -> dict[str, Any]:
    try:
        plan = read_json(folder.plan, folder.root)
    except (OSError, ValueError) as error:
        unknown.append(f"the plan: {error}")
        return {}
    return plan if isinstance(plan, dict) else {}


def _scheduler(folder: RunFolder, plan: dict[str, Any], state: RunState) -> SchedulerFacts:
    backend = str(plan.get("backend", ""))
    try:
        if state.state == "finished" and abilities(backend).shares_files:
            return SchedulerFacts(backend)
        facts = back_end(backend).facts
        if facts is not None:
            collect: Callable[..., SchedulerFacts] = load(facts)
            return collect(folder, state.job)
        standing = submitter_of(folder).standing(folder)
    except CordeeError as error:
        return SchedulerFacts(unknown=(f"the place: {error.text}",))
    states = {"running": "RUNNING", "held": HELD, "suspended": SUSPENDED, "gone": GONE, "unknown": ""}
    return SchedulerFacts(backend, standing.job, states.get(standing.state, "PENDING"), standing.reason)


def _stuck(folder: RunFolder, state: RunState, unknown: list[str]) -> tuple[tuple[StuckChild, ...], int]:
    """Return the children that are stuck; their place is asked about all of them at once, then about those that are returned."""
    alike: dict[tuple[str, str], list[RunFolder]] = {}
    try:
        graph = None if state.ended else read_graph(folder)
        if graph is None:
            return (), 0
        failed = {entry["name"]: entry["text"] for entry in state.children if entry["state"] == "failed"}
        for child in graph.children:
            if child.name in failed:
                alike.setdefault(("failed", failed[child.name]), []).append(child_folder(folder, child))
        by_backend: dict[str, list[RunFolder]] = {}
        for each in open_children(folder):
            by_backend.setdefault(plan_of(each)["backend"], []).append(each)
        for backend, some in by_backend.items():
            for each, standing in zip(some, submitter(backend).standings(some), strict=True):
                if standing.state in _STUCK:
                    alike.setdefault((standing.state, standing.reason), []).append(each)
        worst = sorted(alike.items(), key=lambda one: _STUCK.index(one[0][0]))
        names = {child.run: child.name for child in graph.children}
        found = [
            StuckChild(names[some[0].id], collect_situation(some[0]), len(some) - 1) for _, some in worst[:_MOST_STUCK]
        ]
    except CordeeError as error:
        unknown.append(f"its runs: {error.text}")
        return (), 0
    return tuple(found), sum(len(some) for _, some in worst[_MOST_STUCK:])


def _output(folder: RunFolder, state: RunState, unknown: list[str]) -> tuple[str, ...]:
    """Return the last lines of the rank that failed, of the set-up lines when no rank was started."""
    failed = [failure["rank"] for failure in reversed(state.failures) if failure.get("rank") is not None]
    if not failed:
        failed = [rank.rank for rank in state.ranks if rank.status == "failed"] or ([0] if state.attempts else [_SETUP])
    try:
        lines = LogReader(folder.logs).tail(failed[0], _LAST_LINES)
    except OSError as error:
        unknown.append(f"what was printed: {error}")
        return ()
    mask = output_mask(folder)
    return tuple(plain(mask.line(line.data, rank=line.rank).decode(errors="replace")) for line in lines)


def _memory(folder: RunFolder, plan: dict[str, Any], state: RunState, unknown: list[str]) -> MemoryFacts:
    here = not abilities(str(plan.get("backend"))).several_machines and any(
        rank.signal == "SIGKILL" for rank in state.ranks
    )
    kills = _killed_for_memory() if here else None
    try:
        import numpy as np

        from cordee.telemetry.store.reader import Run

        run = Run(folder)
        if "node" not in run.groups():
            return MemoryFacts(killed_for_memory=kills)
        grid = run.grid("node", ["memory_used_bytes", "memory_total_bytes"], every=60, statistic="max")
        used, total = grid.values[0], grid.values[1]
        if not np.isfinite(used).any():
            return MemoryFacts(killed_for_memory=kills)
        at = np.unravel_index(int(np.nanargmax(used)), used.shape)
        limit = float(total[at])
        return MemoryFacts(float(used[at]), limit if np.isfinite(limit) else None, kills)
    except (CordeeError, OSError, ValueError) as error:
        unknown.append(f"memory use: {error}")
        return MemoryFacts(killed_for_memory=kills)


def _killed_for_memory() -> tuple[int, ...] | None:
    """Return the pids that this machine's kernel ended for memory since it started; None when its log is closed to us."""
    try:
        done = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tuple(int(pid) for pid in _KILLED.findall(done.stdout)) if done.returncode == 0 else None


def _disks(folder: RunFolder, plan: dict[str, Any]) -> list[DiskFacts]:
    """Return the file systems of run folder, checkpoints and working folder, each once."""
    steps = plan.get("steps") or [{}]
    checkpoints = (steps[0].get("checkpoint") or {}).get("path")
    places = [
        ("the run folder", folder.root),
        ("the checkpoint folder", checkpoints),
        ("the working folder", plan.get("workdir")),
    ]
    found: dict[int, DiskFacts] = {}
    for what, place in places:
        path = _existing(Path(place)) if place else None
        if path is None:
            continue
        try:
            status, device = os.statvfs(path), os.stat(path).st_dev
        except OSError:
            continue
        if device not in found:
            files = status.f_favail if status.f_files else None
            free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
            writable = what == "the working folder" or os.access(path, os.W_OK)
            found[device] = DiskFacts(what, str(path), free, total, files, writable)
    return list(found.values())


def _existing(path: Path) -> Path | None:
    """Return the path or the nearest folder above it that is there."""
    return next((place for place in (path, *path.parents) if place.exists()), None)
