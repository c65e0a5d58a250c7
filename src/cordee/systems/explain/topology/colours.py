"""What the colours of the picture say: a coordinate of the mesh, what was found of a rank, or any metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.core.draw.axes import tick_text
from cordee.core.draw.boxes import Legend
from cordee.core.draw.images import APART, LEVELS, ramp
from cordee.core.errors import UsageError
from cordee.core.words import did_you_mean
from cordee.systems.explain.topology.job import PlacedJob

if TYPE_CHECKING:
    from cordee.runs.state import RunState
    from cordee.telemetry.store.reader import Run

PLAIN, STATE = "job", "state"
_APART = [f"#{colour}" for colour in APART]
_RAMP = [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in ramp(LEVELS)]
_UNKNOWN = "#c3c9d0"
_WELL = "#8fa3b5"
# What was found of a rank or node, by the beginning of the rule; who has several has the first of them.
_FOUND = (
    ("rank failed", "", "#b3261e"),
    ("hang", "hang-", "#d55e00"),
    ("straggler", "straggler-", "#e69f00"),
    ("hardware", "hardware-", "#cc79a7"),
    ("other finding", "", "#56b4e9"),
)
_COLUMNS = 120


@dataclass(frozen=True)
class Colours:
    """Colours and words by rank, and by node where ranks are not known or the value is the node's."""

    legend: Legend
    ranks: dict[int, tuple[str, str]] = field(default_factory=dict)
    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)
    other: tuple[str, str] = (_UNKNOWN, "not known")

    def of(self, node: str, rank: int | None = None) -> tuple[str, str]:
        """Return the colour of a rank, or of a node, and what it says."""
        own = self.ranks.get(rank) if rank is not None else None
        return own or self.nodes.get(node) or self.other


def colours(what: str | None, job: PlacedJob, run: Run | None = None, state: RunState | None = None) -> Colours:
    """Return the colours of a picture.

    Args:
        what: a dimension, `state`, `job` (one colour), a metric; None: pp, tp or dp where they are known, else `job`.

    Raises:
        UsageError: nothing of the job has this name.
    """
    chosen = what or next((name for name in ("pp", "tp", "dp") if job.sizes.get(name, 0) > 1 and job.places), PLAIN)
    if chosen == PLAIN:
        return Colours(Legend("nodes of", [(_APART[0], job.name), ("#eceff2", "others")]), other=(_APART[0], ""))
    dimensions = dict.fromkeys(name for place in job.places.values() for name in place)
    if chosen in dimensions:
        return _by_index(chosen, {rank: place[chosen] for rank, place in job.places.items() if chosen in place})
    if chosen == STATE and state is not None:
        return _by_state(state)
    if run is not None and (values := _measured(chosen, run)) is not None:
        return values
    known = [*dimensions, PLAIN, *([STATE] if state is not None else []), *(_metrics(run) if run is not None else [])]
    hint = did_you_mean(chosen, known, "colour by one of these")
    raise UsageError(f"nothing of this job is known by {chosen}", given=chosen, allowed=known[:60], next=hint)


def _by_index(name: str, indices: Mapping[int, int]) -> Colours:
    size = max(indices.values()) + 1
    if size <= len(_APART):
        legend = Legend(name, [(_APART[index], str(index)) for index in sorted(set(indices.values()))])
        return Colours(legend, {rank: (_APART[index], f"{name} {index}") for rank, index in indices.items()})
    shades = {index: _RAMP[index * (LEVELS - 1) // (size - 1)] for index in set(indices.values())}
    legend = Legend(name, ends=("0", str(size - 1)))
    return Colours(legend, {rank: (shades[index], f"{name} {index}") for rank, index in indices.items()})


def _by_state(state: RunState) -> Colours:
    worst_ranks: dict[int, tuple[int, str]] = {}
    worst_nodes: dict[str, tuple[int, str]] = {}
    for rank in state.ranks:
        if rank.status == "failed":
            worst_ranks[rank.rank] = (0, "rank failed")
    for finding in state.findings:
        place = next((at for at, (_, start, _) in enumerate(_FOUND) if start and finding.rule.startswith(start)), 4)
        evidence = finding.evidence if isinstance(finding.evidence, dict) else {}
        for number in _listed(evidence, "rank", "ranks"):
            if isinstance(number, int):
                worst_ranks[number] = min((place, finding.rule), worst_ranks.get(number, (9, "")))
        for name in _listed(evidence, "node", "nodes"):
            worst_nodes[str(name)] = min((place, finding.rule), worst_nodes.get(str(name), (9, "")))
    seen = sorted({place for place, _ in (*worst_ranks.values(), *worst_nodes.values())})
    legend = Legend("found", [(_WELL, "nothing"), *((_FOUND[place][2], _FOUND[place][0]) for place in seen)])
    return Colours(
        legend,
        {rank: (_FOUND[place][2], rule) for rank, (place, rule) in worst_ranks.items()},
        {node: (_FOUND[place][2], rule) for node, (place, rule) in worst_nodes.items()},
        (_WELL, "nothing was found"),
    )


def _listed(evidence: Mapping[str, Any], one: str, several: str) -> list[Any]:
    found = evidence.get(several, evidence.get(one))
    return found if isinstance(found, list) else [] if found is None else [found]


def _metrics(run: Run) -> list[str]:
    return [*dict.fromkeys(name for group in run.groups() for name in run.metrics(group)), *run.logged()]


def _measured(metric: str, run: Run) -> Colours | None:
    """Return the mean of a metric over the whole run, of each device; of what ranks logged, the last value."""
    import numpy as np

    for group in run.groups():
        if metric in run.metrics(group):
            unit = run.metrics(group)[metric].get("unit", "")
            ranks, nodes = _by_owner(run, group, _means(run, group, metric))
            return _shaded(f"{metric}, mean", unit, ranks, nodes)
    if metric in run.logged():
        rows = run.events(metric)[metric][::-1]
        numbers, first = np.unique(rows["rank"], return_index=True)
        last = {int(rank): float(value) for rank, value in zip(numbers, rows["value"][first], strict=True)}
        return _shaded(f"{metric}, last", "", last, {})
    return None


def _means(run: Run, group: str, metric: str) -> dict[str, float]:
    import numpy as np

    from cordee.telemetry.store.views import heat

    seen = heat(run, group, metric, columns=_COLUMNS)
    count = heat(run, group, metric, columns=_COLUMNS, statistic="count").values
    known = np.isfinite(seen.values)
    weight = np.where(known, np.nan_to_num(count), 0).sum(axis=1)
    total = np.where(known, np.nan_to_num(seen.values.astype(np.float64) * count), 0).sum(axis=1)
    means = np.divide(total, weight, out=np.full(len(total), np.nan), where=weight > 0)
    return {str(device): float(mean) for device, mean in zip(seen.devices, means, strict=True) if math.isfinite(mean)}


def _by_owner(run: Run, group: str, means: Mapping[str, float]) -> tuple[dict[int, float], dict[str, float]]:
    """Return the values by rank, of devices that belong to ranks, and by node, each the mean of its devices."""
    ranks: dict[int, list[float]] = {}
    nodes: dict[str, list[float]] = {}
    for node, about in run.facts(group).items():
        for device, facts in about["devices"].items():
            if device in means:
                own = [int(device)] if group == "rank" and device.isdigit() else facts.get("ranks") or ()
                for rank in own:
                    ranks.setdefault(rank, []).append(means[device])
                nodes.setdefault(node, []).append(means[device])
    if not nodes:
        return {}, dict(means)
    return {rank: _mean(values) for rank, values in ranks.items()}, {node: _mean(each) for node, each in nodes.items()}


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _shaded(title: str, unit: str, ranks: Mapping[int, float], nodes: Mapping[str, float]) -> Colours:
    values = [value for value in (*ranks.values(), *nodes.values()) if math.isfinite(value)]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    kind = {"bytes": "bytes", "ratio": "ratio"}.get(unit, "number")
    words = f" {unit}" if unit and kind == "number" else ""

    def shade(value: float) -> tuple[str, str]:
        if not math.isfinite(value):
            return _UNKNOWN, f"{title}: {value}"
        level = int((value - low) / (high - low) * (LEVELS - 1)) if high > low else LEVELS // 2
        return _RAMP[level], f"{title} {tick_text(float(f'{value:.4g}'), kind)}{words}"

    ends = (tick_text(float(f"{low:.3g}"), kind) + words, tick_text(float(f"{high:.3g}"), kind) + words)
    legend = Legend(title, [(_UNKNOWN, "not measured")], ends)
    return Colours(
        legend,
        {rank: shade(value) for rank, value in ranks.items()},
        {node: shade(value) for node, value in nodes.items()},
        (_UNKNOWN, f"{title}: not measured"),
    )
