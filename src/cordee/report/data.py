"""Everything that a report shows, collected from a run's folder; what is missing is named, never zero."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from cordee.errors import CordeeError
from cordee.insight.phases import PhaseShare, phase_shares, repeated_steps
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.reader import Grid, Run
from cordee.runs.state import RunState, replay

_LAST_LINES = 20
_MOST_FAILED_RANKS = 4


@dataclass
class Curve:
    """A user metric over steps: the mean over ranks, and the range."""

    name: str
    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass
class ReportData:
    """What a report shows.

    Attributes:
        curves: what ranks logged, by name.
        grids: samples by group (`node`, `rank`).
        last_lines: the last output of the ranks that failed, or of rank 0, by rank.
        missing: what could not be shown, and why.
    """

    folder: RunFolder
    state: RunState
    plan: dict[str, Any]
    shares: list[PhaseShare]
    curves: dict[str, Curve] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)
    last_lines: dict[int, list[str]] = field(default_factory=dict)
    repeated_steps: int = 0
    missing: list[str] = field(default_factory=list)

    @property
    def step(self) -> dict[str, Any]:
        """The plan's only step."""
        steps = self.plan.get("steps") or [{}]
        first: dict[str, Any] = steps[0]
        return first


def collect(folder: RunFolder) -> ReportData:
    """Return what is known of a run.

    Raises:
        RunFolderError: its journal cannot be read.
    """
    state = replay(read_journal(folder.journal), folder.id)
    try:
        plan = json.loads(folder.plan.read_text())
    except (OSError, ValueError) as error:
        plan = {}
        data = ReportData(folder, state, plan, phase_shares(state), missing=[f"the plan cannot be read: {error}"])
    else:
        data = ReportData(folder, state, plan, phase_shares(state))
    run = Run(folder)
    try:
        _telemetry(run, data)
    except (CordeeError, OSError, ValueError) as error:
        data.missing.append(f"telemetry cannot be read: {error}")
    try:
        _logs(run, data)
    except (CordeeError, OSError, ValueError) as error:
        data.missing.append(f"logs cannot be read: {error}")
    return data


def _telemetry(run: Run, data: ReportData) -> None:
    last_steps: dict[int, int] = {}
    for name, events in run.events().items():
        series = run.series(name)
        lists = (column.astype(float).tolist() for column in (series.steps, series.mean, series.low, series.high))
        data.curves[name] = Curve(name, *lists)
        for attempt in set(events["attempt"].tolist()):
            reached = int(events["step"][events["attempt"] == attempt].max())
            last_steps[attempt] = max(reached, last_steps.get(attempt, -1))
    if not data.curves:
        data.missing.append(
            "no loss or throughput: the ranks did not call cordee.log(step=..., loss=..., tokens_per_s=...)"
        )
    data.repeated_steps = repeated_steps(data.state, last_steps)
    for group in run.groups():
        data.grids[group] = run.grid(group)
    if not data.grids:
        data.missing.append("no resource use: nothing was sampled, the run was too short or never started")
    dropped = run.dropped_events
    if dropped:
        data.missing.append(f"{dropped} logged events were dropped by the ranks because nobody took them in time")


def _logs(run: Run, data: ReportData) -> None:
    failed = [failure["rank"] for failure in data.state.failures if failure.get("rank") is not None]
    failed += [rank.rank for rank in data.state.ranks if rank.status == "failed"]
    ranks = list(dict.fromkeys(failed))[:_MOST_FAILED_RANKS] or ([0] if data.state.ranks else [-1])
    for rank in ranks:
        lines = [line.data.decode(errors="replace") for line in run.logs.tail(rank, _LAST_LINES)]
        if lines:
            data.last_lines[rank] = [text.rstrip("\r\n").rpartition("\r")[2][:500] for text in lines]
