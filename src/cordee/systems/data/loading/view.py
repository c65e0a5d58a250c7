"""Everything that is known of a run's loading of data, in one answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.core.errors import RunFolderError
from cordee.core.findings import Finding
from cordee.core.stats import finite, finite_values
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay
from cordee.systems.data.loading.curves import Curves, curves
from cordee.systems.data.loading.loads import Load, RankLoad, make_load
from cordee.systems.data.loading.running_totals import read_told
from cordee.systems.data.loading.words import limit_text, load_findings, load_text
from cordee.telemetry.node.recording import is_recording

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

SCHEMA = "cordee.loading/1"
MOST_RANKS = 64


@dataclass(frozen=True)
class LoadingView:
    """What a run's loading of data did.

    Attributes:
        start, stop: what the curves show, UTC epoch seconds; NaN when nothing was told.
        planned: the data sets of `[data]`, as plan.json has them.
        loads: those that ranks told of, with `curves` in the same order.
        missing: `{what, why, next}` of what is not known.
    """

    start: float
    stop: float
    planned: list[dict[str, Any]]
    loads: list[Load]
    curves: list[Curves]
    missing: list[dict[str, str]] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """What is worth changing, over all data sets."""
        return [finding for load in self.loads for finding in load_findings(load)]

    @property
    def texts(self) -> list[str]:
        """What loading cost, a sentence for each data set."""
        return [load_text(load) for load in self.loads]

    def document(self) -> dict[str, Any]:
        """Return the view as JSON can hold it: numbers that are none become null, arrays become lists."""
        sets = [{**_load(load), "curve": _curve(curve)} for load, curve in zip(self.loads, self.curves, strict=True)]
        return {
            "schema": SCHEMA,
            "start": finite(self.start),
            "stop": finite(self.stop),
            "planned": self.planned,
            "sets": sets,
            "findings": [finding.document() for finding in self.findings],
            "missing": self.missing,
        }


def loading_view(run: Run, start: float | None = None, stop: float | None = None, points: int = 600) -> LoadingView:
    """Return what ranks waited for data, what they read and how, of a run, also while it goes on.

    Args:
        start, stop: UTC epoch seconds of the curves; without them all of the run. Totals are always of all.
        points: at most so many for each curve.

    Raises:
        RunFolderError: its journal cannot be read.
    """
    journal = [] if is_recording(run.folder) else read_journal(run.folder.journal)
    state = replay(journal, run.id)
    planned = planned_data(run)
    by_name = {str(one.get("place")).rpartition("/")[2]: one for one in planned}
    by_name.update({str(one.get("name")): one for one in planned})
    nodes = {rank.rank: rank.node for rank in state.ranks if rank.node}
    hosts = {node.node: node.host for node in state.nodes if node.host}
    told = read_told(run)
    loads = [
        make_load(name, parts, nodes=nodes, hosts=hosts, planned=_planned_as(name, by_name))
        for name, parts in told.items()
    ]
    times = [one.times for parts in told.values() for one in parts]
    begin = start if start is not None else min((float(at[0]) for at in times), default=math.nan)
    end = stop if stop is not None else max((float(at[-1]) for at in times), default=math.nan)
    drawn = [curves(parts, begin, end, points) for parts in told.values()]
    return LoadingView(begin, end, planned, loads, drawn, _missing(state, planned, loads))


def planned_data(run: Run) -> list[dict[str, Any]]:
    """Return the data sets of `[data]`, as plan.json has them; none where it cannot be read or is older."""
    try:
        plan = run.plan
    except RunFolderError:
        return []
    steps = plan.get("steps") if isinstance(plan, Mapping) else None
    first = steps[0] if isinstance(steps, list) and steps and isinstance(steps[0], Mapping) else {}
    data = first.get("data", [])
    return [dict(one) for one in data if isinstance(one, Mapping)] if isinstance(data, list) else []


def _planned_as(name: str, by_name: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Return what the plan has of a data set, or of a mix of several, which is called by their names with `+` between."""
    if name in by_name:
        return by_name[name]
    parts = [by_name[part] for part in name.split("+") if part in by_name]
    if not parts or len(parts) < name.count("+") + 1:
        return None
    one_tier = len({part.get("tier") for part in parts}) == 1
    return {**(parts[0] if one_tier else {}), "kind": "mix", "place": None}


def _missing(state: RunState, planned: list[dict[str, Any]], loads: list[Load]) -> list[dict[str, str]]:
    known = {load.place for load in loads} | {part for load in loads for part in (load.name, *load.name.split("+"))}
    silent = [str(one.get("name")) for one in planned if not {one.get("name"), one.get("place")} & known]
    missing = []
    if not loads or silent:
        which = f" of {', '.join(silent)}" if silent else ""
        why = "no rank told of it: it is told by cordee.dataset" if state.attempts else "no rank has begun yet"
        how = "read it by cordee.dataset(...); `cordee data bench --loader module:function` measures another loader"
        missing.append({"what": f"the loading{which}", "why": why, "next": how})
    for load in loads:
        if load.limit is None:
            how = f"`cordee data bench {load.place or 'PATH'}`, or `bandwidth` of the tier in the cluster's profile"
            missing.append({"what": f"the limit of {load.name}", "why": "nobody measured it", "next": how})
    return missing


def _load(load: Load) -> dict[str, Any]:
    slowest = load.slowest
    waiting = sorted(load.ranks, key=lambda rank: -(rank.wait_share or 0.0))
    limit = load.limit
    return {
        "name": load.name,
        "kind": load.kind,
        "place": load.place,
        "ranks": len(load.ranks),
        "hosts": load.hosts,
        "epoch": load.epoch,
        "position": load.position,
        "totals": {name: value if name.endswith("seconds") else int(value) for name, value in load.totals.items()},
        "wait_share": load.wait_share,
        "wait_per_step_s": load.wait_per_step_s,
        "step_s": load.step_s,
        "reading_share": load.reading_share,
        "samples_per_s": load.samples_per_s,
        "bytes_per_s": load.bytes_per_s,
        "limit_bytes_per_s": limit.bytes_per_s if limit else None,
        "limit_source": limit.source if limit else None,
        "share_of_limit": load.share_of_limit,
        "limit_text": limit_text(load),
        "requests": [{"le_bytes": size, "count": count} for size, count in load.requests],
        "median_request_bytes": load.median_request_bytes,
        "opens_per_sample": load.opens_per_sample,
        "slowest": _rank(slowest) if slowest else None,
        "by_rank": [_rank(rank) for rank in waiting[:MOST_RANKS]],
        "text": load_text(load),
    }


def _rank(rank: RankLoad) -> dict[str, Any]:
    names = ("rank", "node", "span_s", "wait_s", "wait_share", "wait_per_step_s", "step_s", "reading_share")
    about = {name: getattr(rank, name) for name in names}
    rates = {name: getattr(rank, name) for name in ("bytes_per_s", "samples_per_s", "reading_bytes_per_s")}
    return {**about, **rates, "samples": int(rank.totals["samples"]), "skipped": int(rank.totals["skipped"])}


def _curve(curve: Curves) -> dict[str, Any]:
    names = ("wait_per_step_s", "wait_per_step_most_s", "wait_share", "bytes_per_s", "samples_per_s")
    return {"times": curve.times.tolist(), **{name: finite_values(getattr(curve, name)) for name in names}}
