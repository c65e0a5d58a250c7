"""Everything that a report shows, collected from a run's folder; what is missing is named, never zero."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.backends.reconcile import known_until
from cordee.core import registry
from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.core.secrets import masked_document, masked_text
from cordee.core.units import format_duration, parse_utc
from cordee.faces.report.usage import UsageSamples, read_usage
from cordee.job.submit import submitter_of
from cordee.machine.foreign_files import read_json, regular_below
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.log_tails import output_mask
from cordee.runs.state import RunState, replay
from cordee.telemetry.node.recording import read_recorders, recorded_state
from cordee.telemetry.shown.section import PLACES, Reported, Section
from cordee.telemetry.shown.view import RunView, views_of
from cordee.telemetry.store.phases import LostTime, PhaseShare, SegmentTimes, lost_time, phase_shares, segment_times
from cordee.telemetry.store.reader import Run

if TYPE_CHECKING:
    import numpy as np

_OWN = "cordee/"  # what Cordée itself logs in ranks
_SILENT_S = 120.0
_LAST_LINES = 20
_MOST_FAILED_RANKS = 4
_LONGEST_LINE = 500
_MOST_COMMAND_BYTES = 20_000


@dataclass
class Curve:
    """A user metric over the ranks, in the order of steps: mean, least and greatest; `times` in UTC epoch seconds."""

    name: str
    steps: list[float]
    times: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass
class ReportData:
    """What a report shows.

    Attributes:
        now: when it was collected, UTC epoch seconds.
        lost: what restarts and chaining cost.
        curves: what ranks logged, by name.
        usage: samples by group (`node`, `rank`).
        last_steps: the last step that each rank logged in the newest attempt.
        checkpoints: `{step, name, time}` of each complete checkpoint in the order in which they were seen.
        submitted: the exact script or command lines that were handed to the back end.
        last_lines: the last output of the ranks that failed, or of rank 0, by rank.
        sections: what systems say, by their places; those that could not be made: see `missing`.
        keys: of report.json that systems fill.
        missing: what could not be shown, and why.
        recorded: whether it is a recording, which has no journal and no plan.
    """

    folder: RunFolder
    now: float
    state: RunState
    plan: dict[str, Any]
    shares: list[PhaseShare]
    lost: LostTime
    curves: dict[str, Curve] = field(default_factory=dict)
    usage: dict[str, UsageSamples] = field(default_factory=dict)
    last_steps: dict[int, int] = field(default_factory=dict)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    submitted: str = ""
    last_lines: dict[int, list[str]] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    recorded: bool = False

    @property
    def segments(self) -> list[SegmentTimes]:
        """The times of each segment."""
        return segment_times(self.state, self.known_until)

    @cached_property
    def known_until(self) -> float:
        """Until when it is known what the run has done."""
        return min(self.now, known_until(self.folder, self.state))

    @property
    def advised(self) -> bool:
        """Whether `cordee advise` has more to say: the run failed, or waits for a scheduler."""
        state = self.state
        waits = state.state == "queued" and any(segment.job for segment in state.segment_states)
        return not self.recorded and (state.state == "failed" or waits)

    @property
    def step(self) -> dict[str, Any]:
        """The plan's only step, empty when the plan cannot be read."""
        steps = self.plan.get("steps")
        first = steps[0] if isinstance(steps, list) and steps else {}
        return first if isinstance(first, dict) else {}

    @property
    def argv(self) -> list[str]:
        """The command of the ranks, empty when the plan cannot be read."""
        tasks = self.step.get("tasks")
        argv = tasks.get("argv") if isinstance(tasks, dict) else None
        return [str(word) for word in argv] if isinstance(argv, list) else []

    @cached_property
    def views(self) -> list[RunView]:
        """What systems say of the run wherever runs are told."""
        return views_of(self.state, self.step)

    @property
    def findings(self) -> list[Finding]:
        """Those of the run, then those of the systems."""
        return [*self.state.findings, *(finding for view in self.views for finding in view.findings())]

    @property
    def seconds(self) -> float | None:
        """How long the run has taken since its supervisor started, None when it has not."""
        if self.state.started_at is None:
            return None
        return max(0.0, (self.state.ended_at or self.now) - self.state.started_at)


def collect(run: RunFolder | Path | str) -> ReportData:
    """Return what is known of a run or a recording, also while it goes on.

    Raises:
        RunFolderError: its journal cannot be read.
    """
    folder = run if isinstance(run, RunFolder) else RunFolder(run)
    recorded, now = recorded_state(folder), time.time()
    events = read_journal(folder.journal) if recorded is None else []
    state = recorded or replay(events, folder.id)
    known = known_until(folder, state)
    data = ReportData(folder, now, state, {}, phase_shares(state, known), lost_time(state, {}, known))
    data.recorded = recorded is not None
    data.checkpoints = [
        {"step": event.get("step"), "name": event.get("name"), "time": event.get("time")}
        for event in events
        if event["event"] == "checkpoint_seen"
    ]
    opened = Run(folder)
    for what, read in {"plan": _plan, "telemetry": _telemetry, "resource use": _resources}.items():
        with _told(what, data):
            read(opened, data)
    _sections(opened, data)
    with _told("logs", data):
        _logs(opened, data)
    _note_silence(data, events)
    return data


@contextmanager
def _told(what: str, data: ReportData) -> Iterator[None]:
    """Say what is missing where it cannot be read."""
    try:
        yield
    except OSError as error:
        data.missing.append(f"{what}: {error.strerror or error}")
    except (CordeeError, ValueError) as error:
        data.missing.append(f"{what}: {error}")


def _note_silence(data: ReportData, events: list[dict[str, Any]]) -> None:
    """Say so when a run that has not ended has given no sign of life for a while."""
    heard = max((parse_utc(event["time"]) for event in events), default=data.now)
    sampled = [float(usage.times[-1]) for usage in data.usage.values() if len(usage.times)]
    silent = data.now - max([heard, *sampled])
    if data.state.state == "running" and silent > _SILENT_S:
        data.missing.append(
            f"what happened in the last {format_duration(silent)}: nothing was heard from the run, which may have been killed;"
            f" `cordee resume {data.folder.id}` continues it"
        )


def _plan(run: Run, data: ReportData) -> None:
    if data.recorded:
        argv = next((rank.argv for one in read_recorders(data.folder)[0] for rank in one.ranks), [])
        data.plan = masked_document({"steps": [{"tasks": {"argv": argv}}]})
        return
    try:
        script = submitter_of(data.folder).script_name
        with open(data.folder.submit / script, "rb", opener=regular_below(data.folder.root)) as file:
            data.submitted = masked_text(file.read(_MOST_COMMAND_BYTES).decode(errors="replace").strip())
    except (OSError, CordeeError, KeyError, TypeError):
        data.submitted = ""
    plan = read_json(data.folder.plan, data.folder.root)
    if not isinstance(plan, dict):
        raise ValueError("plan.json is no object")
    data.plan = masked_document(plan)


def _telemetry(run: Run, data: ReportData) -> None:
    logged: dict[int, list[tuple[int, float]]] = {}
    for name, events in run.events().items():
        if name.startswith(_OWN):
            continue
        series = run.series(name)
        columns = (series.steps, series.times, series.mean, series.low, series.high)
        data.curves[name] = Curve(name, *(column.astype(float).tolist() for column in columns))
        _note_steps(events, data, logged)
    data.lost = lost_time(data.state, logged, data.known_until)
    if run.dropped_events:
        data.missing.append(
            f"{run.dropped_events} logged events were dropped by the ranks because nobody took them in time"
        )
    elsewhere = any((data.folder.root / name).is_dir() for name in registry.page_folders(overview=True))
    if not data.curves and data.state.attempts and not elsewhere:
        data.missing.append(
            "no loss or throughput: the ranks did not call cordee.log(step=..., loss=..., tokens_per_s=...)"
        )


def _note_steps(events: np.ndarray, data: ReportData, logged: dict[int, list[tuple[int, float]]]) -> None:
    events = events[events["step"] >= 0]
    for attempt in set(events["attempt"].tolist()):
        of_attempt = events[events["attempt"] == attempt]
        pairs = zip(of_attempt["step"].tolist(), of_attempt["time"].tolist(), strict=True)
        logged.setdefault(attempt, []).extend(pairs)
        if attempt == data.state.attempt:
            for rank, step in zip(of_attempt["rank"].tolist(), of_attempt["step"].tolist(), strict=True):
                data.last_steps[rank] = max(step, data.last_steps.get(rank, 0))


def _resources(run: Run, data: ReportData) -> None:
    sizes = {"node": len(data.state.nodes), "rank": data.state.world_size}
    for group in run.groups():
        data.usage[group] = read_usage(run, group, data.seconds or 0.0, sizes.get(group, data.state.world_size))
    if not data.usage and data.state.attempts:
        data.missing.append("no resource use: nothing was sampled, the run was too short")


def _sections(run: Run, data: ReportData) -> None:
    """Have every system make what it says; what one cannot make takes nothing from the others."""
    reported = Reported(run, data.state, data.step, bool(data.usage))
    kinds: list[type[Section]] = []
    for system in _systems(data):
        with _told(f"what the system {system.name} says", data):
            kinds += load(system.report) if system.report else ()
    kinds.sort(key=lambda kind: PLACES.index(kind.place))
    data.keys = [kind.key for kind in kinds if kind.key]
    for kind in kinds:
        with _told(kind.name, data):
            section = kind(reported)
            data.sections.append(section)
            data.missing += section.missing


def _systems(data: ReportData) -> tuple[registry.System, ...]:
    try:
        return registry.all_systems()
    except CordeeError as error:
        data.missing.append(f"what systems of other packages say: {error}")
        return registry.built_in()


def _logs(run: Run, data: ReportData) -> None:
    if data.recorded:
        return
    failed = [failure["rank"] for failure in reversed(data.state.failures) if failure.get("rank") is not None]
    failed += [rank.rank for rank in data.state.ranks if rank.status == "failed"]
    ranks: Sequence[int] = list(dict.fromkeys(failed))[:_MOST_FAILED_RANKS]
    mask = output_mask(run.folder)
    for rank in ranks or ([0] if data.state.ranks else [-1]):
        lines = [
            mask.line(line.data, line.rank, line.rank).decode(errors="replace")
            for line in run.logs.tail(rank, _LAST_LINES)
        ]
        if lines:
            data.last_lines[rank] = [text.rstrip("\r\n").rpartition("\r")[2][:_LONGEST_LINE] for text in lines]
