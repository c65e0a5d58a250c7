"""The catalogue: every data set that Cordée leaves, its fields, their units and where they come from, read from the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from cordee.core import registry
from cordee.core.parts import load
from cordee.faces.report.datasets import code
from cordee.faces.report.datasets._model import DataField, ReportDataSet
from cordee.faces.report.datasets.sources import metric_sources
from cordee.faces.report.datasets.words import EVENTS, EVERY_EVENT, TAKEN_OVER, WORDS, unit_of
from cordee.telemetry.shown.kept_data import KeptData

SCHEMA = "cordee.catalogue/1"

__all__ = ["SCHEMA", "ReportDataSet", "DataField", "catalogue_document", "datasets"]


def catalogue_document() -> dict[str, Any]:
    """Return the catalogue as one JSON document, `cordee.catalogue/1`."""
    return {"schema": SCHEMA, "datasets": [asdict(one) for one in datasets()]}


@lru_cache(maxsize=1)
def datasets() -> tuple[ReportDataSet, ...]:
    """Return every data set: what is measured, what happened, what was concluded from it; takes a second, once."""
    return (
        *_samples(),
        *_facts(),
        *_logged(),
        *_journal(),
        *_state(),
        *_of_systems(),
        *_report(),
        *_views(),
        *_files(),
    )


def _samples() -> list[ReportDataSet]:
    from cordee.telemetry.node.catalogue import GROUPS

    about = {"gpu": "GPUs or their instances, by UUID", "node": "nodes, by name", "rank": "ranks, by global number"}
    sources = metric_sources()
    return [
        ReportDataSet(
            f"samples/{group}",
            f"Samples of {about.get(group, group).partition(',')[0]}",
            "telemetry/",
            f"float32 [metric, time, device]; devices are {about.get(group, group)}; NaN = not measured",
            f'`run.grid("{group}")`, `run.to_xarray("{group}")`, `run.to_pandas("{group}")`; `/api/runs/RUN/heat`, `bands`, `lines`',
            "One value for each device and sample, once a second unless the job says otherwise (a group of another interval"
            f" is called `{group}-0.1s`); a node lists those metrics that it can measure, facts say why others are missing.",
            tuple(
                DataField(metric.name, metric.unit, "float32", ", ".join(sources[metric.name]), metric.meaning)
                for metric in metrics
            ),
        )
        for group, metrics in GROUPS.items()
    ]


def _facts() -> list[ReportDataSet]:
    from cordee.control.agent.ranks.facts import RankFacts
    from cordee.telemetry.node.places import place_fact
    from cordee.telemetry.node.record.sampler import NodeRecorder
    from cordee.telemetry.node.samplers.host import node_sampler

    keys = {
        "gpu": list[str](),
        "node": _keys_of([node_sampler]),
        "rank": _keys_of([RankFacts.begin, NodeRecorder._rank_facts, place_fact]),
    }
    return [
        ReportDataSet(
            f"facts/{group}",
            f"Facts of {group}s",
            "telemetry/",
            "by node: `devices` by name, `missing` (reason by metric), `remarks` (sentences)",
            f'`run.facts("{group}")`; `/api/runs/RUN/devices?group={group}`',
            "What the devices of the samples are, and why a metric is not measured. What is not known is left out.",
            tuple(_named(dict.fromkeys([*keys[group], *told]), {}, "the sampler, the agent")),
        )
        for group, told in code.sampler_facts().items()
    ]


def _logged() -> list[ReportDataSet]:
    from cordee.runs.logframes import Frame
    from cordee.telemetry.store.model import LoggedEvent

    own = ", ".join(f"`{name}`" for name in code.own_events())
    words = {
        "offset": "counts the rank's calls in bytes; (attempt, rank, offset) names a call for good",
        "step": "that it was logged with; -1 in arrays, NA in frames: none",
        "values": "name to number; what was logged",
    }
    return [
        ReportDataSet(
            "events",
            "What ranks log",
            "telemetry/",
            "one entry for each call and rank; arrays by name",
            '`run.events()`, `run.series("loss")`, `run.to_pandas("events")`; `/api/runs/RUN/logged`',
            "What the training gave to `cordee.log`, or to a writer that Cordée listens to. Names are the training's own;"
            + (f" those of Cordée itself are {own}." if own else " those that begin with `cordee/` are Cordée's."),
            tuple(_of_class(LoggedEvent, "cordee.log", words)),
        ),
        ReportDataSet(
            "logs",
            "What ranks print",
            "logs/<node>-<segment>.log",
            "framed bytes, as they were printed",
            "`run.logs.lines(rank=0)`, `run.logs.tail(0, 20)`; `cordee logs`; `/api/runs/RUN/logs`",
            "Standard output and error of every rank, with the moment at which the agent read it.",
            tuple(
                _of_class(
                    Frame,
                    "the rank's agent",
                    {
                        "stream": "0 standard output, 1 standard error, 2 Cordée's own words",
                        "flags": "1: the data says how much the disk refused",
                        "data": "at most 64 KiB",
                        "end": "offset behind it in its file",
                        "file": "its file's name",
                    },
                )
            ),
        ),
    ]


def _journal() -> list[ReportDataSet]:
    rows = [
        DataField(name, unit_of(name, "str" if name == "time" else ""), "", "every line", words)
        for name, words in EVERY_EVENT.items()
    ]
    for event, fields in code.journal_events().items():
        rows.append(DataField(event, "", "event", "", EVENTS[event]))
        rows += [
            DataField(f"{event}.{name}", unit_of(name), "", "", _words(name))
            for name in dict.fromkeys([*fields, *TAKEN_OVER.get(event, ())])
        ]
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
    from cordee.faces.report.run_document import run_document
    from cordee.runs.state import NodeState, Phase, RankState, RunState, SegmentState

    parts = {"nodes[].": NodeState, "ranks[].": RankState, "phases[].": Phase, "segment_states[].": SegmentState}
    rows = _of_class(RunState, "the journal")
    for above, of in parts.items():
        rows += [_below(above, field) for field in _of_class(of, "the journal")]
    return [
        ReportDataSet(
            "state",
            "A run's state",
            "journal/",
            "the replay of the journal; `/api/runs/RUN` and `cordee show --json` carry it",
            "`run.state`",
            "Where a run is now, and how it came there; nodes and ranks are those of the newest segment and attempt.",
            tuple(rows),
        ),
        ReportDataSet(
            "run",
            "The run document",
            "what commands print",
            "JSON, `cordee.run/1`; times are UTC epoch seconds",
            "`cordee show --json`, `cordee run --json`, `cordee watch --json` (with rows); `/api/runs/RUN` (with more)",
            "A run's state with its nodes, ranks and segments, for programs.",
            tuple(
                _named(
                    _keys_of([run_document, *_view_documents()]),
                    code.docstring_fields(RunState),
                    "the journal, the plan",
                )
            ),
        ),
        ReportDataSet(
            "findings",
            "Findings",
            "journal/, documents of commands",
            "list of objects",
            "`run.state.findings`; `cordee show --json`; `/api/runs/RUN/findings`",
            "What is worth telling a person: of documents, runs, vettings and scores.",
            tuple(_of_class(Finding, "")),
        ),
    ]


def _of_systems() -> list[ReportDataSet]:
    return [_kept(one) for system in registry.all_systems() if system.data_sets for one in load(system.data_sets)()]


def _kept(one: KeptData) -> ReportDataSet:
    said = {name: words for of in one.said for name, words in code.docstring_fields(of).items()}
    rows = {field.name: field for field in _of_class(one.parts[""], one.source)} if "" in one.parts else {}
    rows |= {field.name: field for field in _named(_keys_of(one.documents), said, one.source)}
    for above, of in one.parts.items():
        for field in _of_class(of, one.sources.get(above, one.source)):
            rows.setdefault(above + field.name, _below(above, field))
    return ReportDataSet(one.name, one.title, one.where, one.form, one.read, one.meaning, tuple(rows.values()))


def _view_documents() -> list[Callable[..., Any]]:
    """Return the functions that write what systems add to documents of runs."""
    return [load(system.views).document for system in registry.all_systems() if system.views]


def _report() -> list[ReportDataSet]:
    from cordee.faces.report.document import report_document

    sections = [
        kind.key for system in registry.all_systems() if system.report for kind in load(system.report) if kind.key
    ]
    return [
        ReportDataSet(
            "report",
            "The report",
            "report/report.json",
            "JSON, `cordee.report/1`",
            "`cordee report --json`",
            "What the report's page shows, for programs.",
            tuple(_named([*_keys_of([report_document, *_view_documents()]), *sections], {}, "the report")),
        ),
    ]


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
            tuple(_of_class(of, "the samples")),
        )
        for name, (of, meaning) in about.items()
    ]


def _files() -> list[ReportDataSet]:
    from cordee.job.plan.model import Plan
    from cordee.telemetry.node.recording import RecordedRank, Recorder

    recorders = _of_class(Recorder, "the sampler")
    recorders += [_below("ranks[].", field) for field in _of_class(RecordedRank, "the sampler")]
    return [
        ReportDataSet(
            "plan",
            "The plan",
            "plan.json",
            "JSON, `cordee.plan/1`; frozen at submission",
            "`run.plan`",
            "What is run, where and with what: the only thing that the back end and the node side read.",
            tuple(_of_class(Plan, "the job document, the cluster's profile")),
        ),
        ReportDataSet(
            "recorders",
            "Recorders of a recording",
            "recorders/<n>.json",
            "JSON, `cordee.recording/1`, one for each node and step",
            "`cordee.telemetry.node.recording.read_recorders`",
            "What `cordee record` sampled, where, and what of.",
            tuple(recorders),
        ),
    ]


def _keys_of(functions: Sequence[Callable[..., Any]]) -> list[str]:
    return list(dict.fromkeys(key for function in functions for key in code.document_keys(function)))


def _named(keys: Iterable[str], said: dict[str, str] | None = None, source: str = "") -> list[DataField]:
    """Return fields of which the code tells the names alone."""
    return [DataField(key, unit_of(key), "", source, (said or {}).get(key) or _words(key)) for key in keys]


def _of_class(of: type, source: str, words: dict[str, str] | None = None) -> list[DataField]:
    return [
        DataField(name, unit_of(name, kind), kind, source, said or (words or {}).get(name) or _words(name))
        for name, (kind, said) in code.class_fields(of).items()
    ]


def _below(above: str, field: DataField) -> DataField:
    return DataField(above + field.name, field.unit, field.kind, field.source, field.meaning)


def _words(name: str) -> str:
    return WORDS.get(name.rpartition(".")[2].removesuffix("[]"), "")
