"""The catalogue: a plain table of the data sets that Cordée leaves, their columns, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ForwardRef

from cordee.core import registry
from cordee.core.parts import load
from cordee.telemetry.shown.kept_data import KeptData

SCHEMA = "cordee.catalogue/1"


@dataclass(frozen=True)
class DataField:
    """One column of a data set.

    Attributes:
        name: as it stands in the data; `nodes[].node` is inside a list.
        unit: of numbers; times are UTC. Empty where it has none.
        kind: the type as the code has it, where it says one.
        meaning: one sentence, empty where the name says all.
    """

    name: str
    unit: str = ""
    kind: str = ""
    meaning: str = ""


@dataclass(frozen=True)
class ReportDataSet:
    """One data set.

    Attributes:
        name: short and stable, such as `samples/gpu`.
        title: for people.
        where: the files in the run's folder, or the command, that hold it.
        form: how it is laid out.
        read: how Python, and programs, read it.
        meaning: a sentence or two.
        fields: what it holds, where that is one table.
    """

    name: str
    title: str
    where: str
    form: str
    read: str
    meaning: str
    fields: tuple[DataField, ...] = ()


def catalogue_document() -> dict[str, Any]:
    """Return the catalogue as one JSON document, `cordee.catalogue/1`."""
    return {"schema": SCHEMA, "datasets": [asdict(one) for one in datasets()]}


@lru_cache(maxsize=1)
def datasets() -> tuple[ReportDataSet, ...]:
    """Return every data set: what is measured, what happened, what was concluded from it."""
    return (*_samples(), *_facts(), *_logged(), *_journal(), *_state(), *_of_systems(), *_views(), *_files())


def _samples() -> list[ReportDataSet]:
    from cordee.telemetry.node.catalogue import GROUPS

    about = {"gpu": "GPUs or their instances, by UUID", "node": "nodes, by name", "rank": "ranks, by global number"}
    return [
        ReportDataSet(
            f"samples/{group}",
            f"Samples of {about.get(group, group).partition(',')[0]}",
            "telemetry/",
            f"float32 [metric, time, device]; devices are {about.get(group, group)}; NaN = not measured",
            f'`run.grid("{group}")`, `run.to_xarray("{group}")`, `run.to_pandas("{group}")`; `/api/runs/RUN/heat`, `bands`, `lines`',
            "One value for each device and sample, once a second unless the job says otherwise (a group of another interval"
            f" is called `{group}-0.1s`); a node lists those metrics that it can measure, facts say why others are missing.",
            tuple(DataField(metric.name, metric.unit, "float32", metric.meaning) for metric in metrics),
        )
        for group, metrics in GROUPS.items()
    ]


def _facts() -> list[ReportDataSet]:
    return [
        ReportDataSet(
            f"facts/{group}",
            f"Facts of {group}s",
            "telemetry/",
            "by node: `devices` by name, `missing` (reason by metric), `remarks` (sentences)",
            f'`run.facts("{group}")`; `/api/runs/RUN/devices?group={group}`',
            "What the devices of the samples are, and why a metric is not measured. What is not known is left out.",
        )
        for group in ("gpu", "node", "rank")
    ]


def _logged() -> list[ReportDataSet]:
    from cordee.runs.logframes import Frame
    from cordee.telemetry.store.model import LoggedEvent

    return [
        ReportDataSet(
            "events",
            "What ranks log",
            "telemetry/",
            "one entry for each call and rank; arrays by name",
            '`run.events()`, `run.series("loss")`, `run.to_pandas("events")`; `/api/runs/RUN/logged`',
            "What the training gave to `cordee.log`, or to a writer that Cordée listens to. Names are the training's own;"
            " those that begin with `cordee/` are Cordée's.",
            _of_class(
                LoggedEvent,
                {
                    "offset": "counts the rank's calls in bytes; (attempt, rank, offset) names a call for good",
                    "step": "that it was logged with; -1 in arrays, NA in frames: none",
                    "values": "name to number; what was logged",
                },
            ),
        ),
        ReportDataSet(
            "logs",
            "What ranks print",
            "logs/<node>-<segment>.log",
            "framed bytes, as they were printed",
            "`run.logs.lines(rank=0)`, `run.logs.tail(0, 20)`; `cordee logs`; `/api/runs/RUN/logs`",
            "Standard output and error of every rank, with the moment at which the agent read it.",
            _of_class(
                Frame,
                {
                    "stream": "0 standard output, 1 standard error, 2 Cordée's own words",
                    "flags": "1: the data says how much the disk refused",
                    "data": "at most 64 KiB",
                    "end": "offset behind it in its file",
                    "file": "its file's name",
                },
            ),
        ),
    ]


def _journal() -> list[ReportDataSet]:
    rows = [
        DataField(name, _unit_of(name, "str" if name == "time" else ""), "every line", words)
        for name, words in _EVERY_EVENT.items()
    ]
    rows += [DataField(event, "", "event", words) for event, words in _EVENTS.items()]
    return [
        ReportDataSet(
            "journal",
            "The journal",
            "journal/<writer>.jsonl",
            "JSON lines, one file for each writer; ordered by epoch and sequence, never by the clock",
            "`run.state` (its replay); `cordee.runs.journal.read_journal`; `/api/runs/RUN`",
            "Everything that happened to the run. Events that a reader does not know change nothing.",
            tuple(rows),
        )
    ]


def _state() -> list[ReportDataSet]:
    from cordee.core.findings import Finding
    from cordee.runs.state import NodeState, Phase, RankState, RunState, SegmentState

    parts = {"": RunState, "nodes[].": NodeState, "ranks[].": RankState, "phases[].": Phase}
    return [
        ReportDataSet(
            "state",
            "A run's state",
            "journal/",
            "the replay of the journal; `/api/runs/RUN` and `cordee show --json` carry it",
            "`run.state`",
            "Where a run is now, and how it came there; nodes and ranks are those of the newest segment and attempt.",
            _of_parts({**parts, "segment_states[].": SegmentState}),
        ),
        ReportDataSet(
            "run",
            "The run document",
            "what commands print",
            "JSON, `cordee.run/1`; times are UTC epoch seconds",
            "`cordee show --json`, `cordee run --json`, `cordee watch --json` (with rows); `/api/runs/RUN` (with more)",
            "A run's state with its nodes, ranks and segments, for programs.",
        ),
        ReportDataSet(
            "findings",
            "Findings",
            "journal/, documents of commands",
            "list of objects",
            "`run.state.findings`; `cordee show --json`; `/api/runs/RUN/findings`",
            "What is worth telling a person: of documents, runs, vettings and scores.",
            _of_class(Finding),
        ),
        ReportDataSet(
            "report",
            "The report",
            "report/report.json",
            "JSON, `cordee.report/1`",
            "`cordee report --json`",
            "What the report's page shows, for programs.",
        ),
    ]


def _of_systems() -> list[ReportDataSet]:
    return [_kept(one) for system in registry.all_systems() if system.data_sets for one in load(system.data_sets)()]


def _kept(one: KeptData) -> ReportDataSet:
    return ReportDataSet(one.name, one.title, one.where, one.form, one.read, one.meaning, _of_parts(one.parts))


def _views() -> list[ReportDataSet]:
    from cordee.telemetry.store.views import Bands, Heat, Lines

    about = {
        "heat": (Heat, "A metric of all devices over time, as many columns and rows as a picture has."),
        "bands": (Bands, "How the devices of a metric were spread at each time."),
        "lines": (Lines, "A metric of a few devices over time."),
    }
    return [
        ReportDataSet(
            f"views/{name}",
            f"Views: {name}",
            "what is computed from samples",
            "arrays and scalars; over HTTP JSON, Arrow, or frames (`application/vnd.cordee.frame`)",
            f"`cordee.telemetry.store.views.{name}`; `/api/runs/RUN/{name}`",
            meaning,
            _of_class(of),
        )
        for name, (of, meaning) in about.items()
    ]


def _files() -> list[ReportDataSet]:
    from cordee.job.plan.model import Plan
    from cordee.telemetry.node.recording import RecordedRank, Recorder

    return [
        ReportDataSet(
            "plan",
            "The plan",
            "plan.json",
            "JSON, `cordee.plan/1`; frozen at submission",
            "`run.plan`",
            "What is run, where and with what: the only thing that the back end and the node side read.",
            _of_class(Plan),
        ),
        ReportDataSet(
            "recorders",
            "Recorders of a recording",
            "recorders/<n>.json",
            "JSON, `cordee.recording/1`, one for each node and step",
            "`cordee.telemetry.node.recording.read_recorders`",
            "What `cordee record` sampled, where, and what of.",
            _of_parts({"": Recorder, "ranks[].": RecordedRank}),
        ),
    ]


def _of_parts(parts: Mapping[str, type]) -> tuple[DataField, ...]:
    """Return the fields of classes by what stands before their names."""
    return tuple(
        DataField(above + field.name, field.unit, field.kind, field.meaning)
        for above, of in parts.items()
        for field in _of_class(of)
    )


def _of_class(of: type, words: Mapping[str, str] | None = None) -> tuple[DataField, ...]:
    kinds = {name: _kind(kind) for name, kind in of.__annotations__.items()}
    return tuple(
        DataField(name, _unit_of(name, kind), kind, (words or {}).get(name, "")) for name, kind in kinds.items()
    )


def _kind(kind: Any) -> str:
    if isinstance(kind, ForwardRef):
        return kind.__forward_arg__
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


_UNITS = (
    ("_per_second", "1/s"),
    ("bytes_per_s", "bytes/s"),
    ("_per_s", "1/s"),
    ("_seconds", "s"),
    ("_bytes", "bytes"),
    ("_joules", "joules"),
    ("_ratio", "ratio"),
    ("_at", "s, UTC epoch"),
    ("_s", "s"),
)
_WHOLE = {
    "time": "s, UTC epoch",
    "start": "s, UTC epoch",
    "end": "s, UTC epoch",
    "mono": "s, monotonic",
    "seconds": "s",
    "size": "bytes",
    "bytes": "bytes",
    "until": "s, UTC epoch",
    "began": "s, UTC epoch",
    "score": "0-100",
    "share": "ratio",
    "coverage": "ratio",
    "balance": "ratio",
    "confidence": "ratio",
    "breadth": "ratio",
    "depth": "ratio",
    "mfu": "ratio",
    "goodput": "ratio",
    "cadence": "s",
    "cores_per_rank": "cores",
}
_TEXT_KINDS = ("str", "bool", "list[str]")


def _unit_of(name: str, kind: str = "") -> str:
    """Return the unit that a name ends in; empty when it ends in none, or what it names is a text."""
    last = name.rpartition(".")[2].removesuffix("[]")
    if kind.removeprefix("Optional[").removesuffix("]") in _TEXT_KINDS or kind == "str | None":
        return "UTC, ISO 8601" if last == "time" or last.endswith("_at") else ""
    return _WHOLE.get(last) or next((unit for end, unit in _UNITS if last.endswith(end)), "")


_EVENTS = {
    "attempt_ended": "An attempt has ended: how, why, and whether a checkpoint was made in it.",
    "attempt_started": "All ranks are about to be started.",
    "cancel_requested": "A person asked to end the run.",
    "child_ended": "A run below this one has ended, or is done already: how, and what it has left or shown.",
    "child_placed": "A run below this one was handed to its place.",
    "checkpoint_seen": "A new complete checkpoint was found.",
    "checkpoints_doubted": "Which checkpoints attempts do not begin with, because one that did failed at its start.",
    "container_lost": "What held a node's container has ended; its agent opens another.",
    "continued": "The next segment was asked for.",
    "crash_loop": "The same failure came again without progress and is not repeated.",
    "data_read": "How far an attempt's ranks were in a data set, told at each save and at the end.",
    "ended": "The run has ended; nothing follows but a person's `cordee resume`.",
    "finding": "Something worth telling a person, as `cordee check` would.",
    "data_listed": "What a data set that is brought to the nodes consists of was listed.",
    "hold_released": "A command released the job, which the scheduler held by itself; `refused` says why not.",
    "node_connected": "An agent came.",
    "node_lost": "An agent is gone, or never came.",
    "node_staged": "A data set is on a node: where, how much, and from where it came.",
    "node_suspected": "Another node is to take its place at the next restart; an empty reason: no longer.",
    "node_verdict": "What was found on a node.",
    "nodes_chosen": "Which nodes are used, spare or left out.",
    "notice": "Somebody was told that the run has ended, or could not be.",
    "placed": "The scheduler has the script, and calls it by this job.",
    "placing": "The script is about to be handed to the scheduler.",
    "progress": "How far the ranks are.",
    "tasks_progress": "How far the tasks of a farm are.",
    "rank_exited": "A rank has ended.",
    "rank_started": "A rank runs.",
    "restart_scheduled": "Another attempt follows after a pause.",
    "resume_requested": "A person, or the scheduler, had an ended run continue.",
    "sealed": "Telemetry is sealed until this time.",
    "segment_ended": "The allocation ended before the run did.",
    "staging_ended": "All nodes of the attempt have their data.",
    "staging_started": "Data sets are being brought to nodes.",
    "service": "A service of the job is ready, has failed or was ended: where, and why.",
    "stop_agreed": "The step at which all ranks stop.",
    "stop_requested": "Ranks are asked to stop.",
    "submitted": "The plan was handed to the back end.",
    "supervisor_started": "An epoch begins: its supervisor has taken the run.",
    "vetting_started": "Nodes are being looked at.",
    "vetting_verdict": "What was found of the whole allocation.",
}
_EVERY_EVENT = {
    "schema": "`cordee.journal/1`.",
    "epoch": "Of the supervisor that wrote it, or that was newest when a command did.",
    "seq": "Counts the writer's events; with the epoch it gives the order.",
    "writer": "The file's name: `client`, or `supervisor-<epoch>`.",
    "time": "The wall clock.",
    "mono": "The writer's monotonic clock.",
    "event": "One of those below.",
}
