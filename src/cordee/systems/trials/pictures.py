"""Pictures of a sweep: all parameters at once, each by itself, and several goals against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cordee.core.draw.charts import ChartLine, line_chart
from cordee.core.draw.parallel import ParallelAxis, ParallelLine, parallel_coordinates
from cordee.systems.trials.sweeps import Sweep

_MOST_SLICES, _MOST_AXES, _MOST_POINTS, _MOST_CHOICES = 8, 8, 200, 8
_FAR = 100.0  # a range that spans more is drawn by its logarithm


def pictures(sweep: Sweep) -> list[tuple[str, str]]:
    """Return what there is to see of a sweep: titles and SVG."""
    done = sweep.compared
    if len(done) < 2:
        return []
    shares = sweep.document()["importance"] or {}
    names = sorted(
        dict.fromkeys(name for trial in done for name in trial["parameters"]), key=lambda name: -shares.get(name, 0.0)
    )
    found = [("all trials at once, the best are blue", _parallel(sweep, done, names))] if len(names) > 1 else []
    if len(sweep.goals) > 1:
        found.append(_front(sweep, done))
    metric = sweep.goals[0][1]
    for name in names[:_MOST_SLICES]:
        those = [trial for trial in done if name in trial["parameters"]]
        if len(those) < 2:
            continue
        places, label, choices = _places([trial["parameters"][name] for trial in those], name)
        line = _dots(metric, places, [trial["value"] for trial in those])
        share = f", explains {shares[name]:.0%}" if name in shares else ""
        title = f"{metric} over {name}{choices}{share}"
        found.append((title, line_chart(title, [line], x_label=label)))
    return found


def _parallel(sweep: Sweep, done: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    columns = [_column(name, [trial["parameters"].get(name) for trial in done]) for name in names[:_MOST_AXES]]
    for index, (_, metric) in enumerate(sweep.goals):
        columns.append(_column(metric, [f"{trial['values'][index]:.6g}" for trial in done]))
    sign = 1.0 if sweep.goals[0][0] == "max" else -1.0
    order = sorted(range(len(done)), key=lambda index: sign * done[index]["value"])
    good = {index: place / max(1, len(done) - 1) for place, index in enumerate(order)}
    lines = [
        ParallelLine([places[index] for _, places in columns], good[index], _about(sweep, trial))
        for index, trial in enumerate(done)
    ]
    return parallel_coordinates("all trials at once", [axis for axis, _ in columns], lines)


def _about(sweep: Sweep, trial: dict[str, Any]) -> str:
    values = " ".join(f"{name}={value}" for name, value in trial["parameters"].items())
    pairs = zip(sweep.goals, trial["values"], strict=True)
    return f"trial {trial['id']}: {', '.join(f'{metric} {value:.6g}' for (_, metric), value in pairs)}; {values}"


def _column(name: str, values: Sequence[str | None]) -> tuple[ParallelAxis, list[float | None]]:
    """Return an axis and where values stand on it."""
    known = [value for value in values if value is not None]
    places, label, choices = _places(known, name)
    low, high = min(places), max(places)
    spread = (high - low) or 1.0
    along = iter([(place - low) / spread if high > low else 0.5 for place in places])
    if choices:
        distinct = sorted(set(known))[:_MOST_CHOICES]
        marks = [((sorted(set(known)).index(one) - low) / spread if high > low else 0.5, one) for one in distinct]
    else:
        first, last = (min(known, key=float), max(known, key=float))
        marks = [(0.0, first), (1.0, last)] if high > low else [(0.5, first)]
    return ParallelAxis(label, marks), [None if value is None else next(along) for value in values]


def _front(sweep: Sweep, done: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the first two goals against each other, and the trials that no other one beats."""
    (_, first), (_, second) = sweep.goals[:2]
    front = [trial["values"] for trial in sweep.front]
    others = _dots("trials", [trial["values"][0] for trial in done], [trial["values"][1] for trial in done])
    pairs = sorted((values[0], values[1]) for values in front)
    line = _dots("no other trial beats these", [x for x, _ in pairs], [y for _, y in pairs])
    title = f"{second} over {first}: {len(front)} trials that no other one beats"
    return title, line_chart(title, [others, line], x_label=first)


def _places(values: Sequence[str], name: str) -> tuple[list[float], str, str]:
    """Return where values stand on an axis, what it is called, and what its numbers mean.

    Numbers stand where they are, wide ranges by their logarithm, choices in a row.
    """
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        choices = sorted(set(values))
        meaning = ", ".join(f"{at} {one}" for at, one in enumerate(choices))
        return [float(choices.index(value)) for value in values], name, f" ({meaning})"
    if min(numbers) > 0 and max(numbers) / min(numbers) > _FAR:
        return [math.log10(number) for number in numbers], f"log10 of {name}", ""
    return numbers, name, ""


def _dots(name: str, xs: Sequence[float], ys: Sequence[float]) -> ChartLine:
    """Return points as a line that has a gap behind each of them; of many, the best and worst of each stretch stay."""
    pairs = sorted(zip(xs, ys, strict=True))
    step = max(1, math.ceil(len(pairs) / _MOST_POINTS))
    kept = [pair for at in range(0, len(pairs), step) for pair in _ends(pairs[at : at + step])]
    x = [place for pair in kept for place in (pair[0], pair[0])]
    y = [value for pair in kept for value in (pair[1], math.nan)]
    return ChartLine(name, x, y)


def _ends(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    low, high = (pick(pairs, key=lambda pair: pair[1]) for pick in (min, max))
    return [low] if low == high else sorted((low, high))
