"""The heat map of the live view: devices x time, in blocks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from cordee.core.draw.clean import one_line
from cordee.core.errors import CordeeError
from cordee.core.terminal.draw import coloured, scale, shaded
from cordee.core.terminal.quantities import quantity
from cordee.core.words import counted

if TYPE_CHECKING:
    from cordee.faces.cli.watch.samples import NewestSamples, SampleRow
    from cordee.telemetry.store.views import Heat

_STATISTICS = ("mean", "min", "max")
_SORTS = ("by rank", "by who differs")
_SPANS = (("whole run", None), ("last hour", 3600.0), ("last 10 min", 600.0))
_LABEL = 12
_SHARE_OF_A_CORE = 0.05


@dataclass
class HeatChoice:
    """What the heat map shows: which row's metric, the statistic where cells share samples, how much of the run, the order.

    Attributes:
        seen: the map that was read last; `asked`: for what; `due`: until when it is new enough, monotonic.
    """

    row: int = 0
    statistic: int = 0
    span: int = 0
    sort: int = 0
    asked: tuple[object, ...] = ()
    seen: Heat | None = None
    due: float = 0.0

    def press(self, key: str) -> None:
        """Take a key: m and M the next metric and the one before, s the statistic, z the span of time, x the order."""
        self.row += {"m": 1, "M": -1}.get(key, 0)
        self.statistic = (self.statistic + (key == "s")) % len(_STATISTICS)
        self.span = (self.span + (key == "z")) % len(_SPANS)
        self.sort = (self.sort + (key == "x")) % len(_SORTS)


def lines(
    samples: NewestSamples, choice: HeatChoice, height: int, width: int, *, colours: bool
) -> list[RenderableType]:
    """Return the map in at most so many lines; devices that do not fit share lines, which then show their statistic."""
    if not samples.rows:
        return [Text(samples.trouble or "nothing was sampled yet", style="dim")]
    row = samples.rows[choice.row % len(samples.rows)]
    try:
        seen = _read(samples, row, choice, max(8, width - _LABEL - 2))
    except (CordeeError, OSError) as error:
        return [Text(one_line(str(error).partition("\n")[0]), style="yellow")]
    statistic, span = _STATISTICS[choice.statistic], _SPANS[choice.span][0]
    room = max(1, height - 3) * (2 if colours else 1)
    names, values, each = _folded(samples, row, seen, choice, room)
    shared = f", {each} to a line" if each > 1 else ""
    devices = counted(len(seen.devices), "device")
    title = f"{row.title}  {row.metric}  {devices}{shared}, {_SORTS[choice.sort]}"
    title += f"; {span}, a column is {seen.cadence:g} s; {statistic}"
    legend = Text.assemble(
        ("blank: not measured   ", "dim"),
        f"{quantity(seen.low, seen.unit)} ",
        scale(colours=colours),
        f" {quantity(seen.high, seen.unit)}",
        no_wrap=True,
        overflow="ellipsis",
    )
    body = _body(names, values, seen, colours)
    return [Text(title, style="bold", no_wrap=True, overflow="ellipsis"), *body, _axis(seen), legend]


def _read(samples: NewestSamples, row: SampleRow, choice: HeatChoice, columns: int) -> Heat:
    """Return the map; again only when something else is asked for, or the last time is long ago for what it cost."""
    from cordee.telemetry.store.views import heat

    asked = (row.metric, choice.statistic, choice.span, columns)
    if choice.seen is not None and asked == choice.asked and time.monotonic() < choice.due:
        return choice.seen
    began = time.process_time()
    span = _SPANS[choice.span][1]
    start = max(row.history) - span if span is not None and row.history else None
    choice.seen = heat(
        samples.run, row.group, row.metric, start, None, columns, statistic=_STATISTICS[choice.statistic]
    )
    choice.asked = asked
    choice.due = time.monotonic() + max(2.0, (time.process_time() - began) / _SHARE_OF_A_CORE)
    return choice.seen


def _folded(
    samples: NewestSamples, row: SampleRow, seen: Heat, choice: HeatChoice, room: int
) -> tuple[list[str], list[list[float]], int]:
    """Return the name of each line's first device, its values, and how many devices share a line."""
    import numpy as np

    from cordee.telemetry.store.reduce import merged

    if choice.sort:
        recent = np.array([row.recent.get(device, np.nan) for device in seen.devices])
        middle = np.nanmedian(recent) if np.isfinite(recent).any() else 0.0
        far = np.nan_to_num(np.abs(recent - middle), nan=-1.0)
        order = np.argsort(-far, kind="stable").tolist()
    else:
        order = sorted(range(len(seen.devices)), key=lambda at: samples.order(row, seen.devices[at]))
    each = max(1, -(-len(order) // room))
    values = seen.values[order]
    if each > 1:
        values = merged(values, each, _STATISTICS[choice.statistic])
    names = [samples.name(row, seen.devices[order[at]]) for at in range(0, len(order), each)]
    return names, values.tolist(), each


def _body(names: list[str], values: list[list[float]], seen: Heat, colours: bool) -> list[RenderableType]:
    found: list[RenderableType] = []
    each = 2 if colours else 1
    for at in range(0, len(values), each):
        label = Text(no_wrap=True, overflow="crop").append(one_line(names[at], _LABEL).ljust(_LABEL + 1), "dim")
        if colours:
            below = values[at + 1] if at + 1 < len(values) else None
            label.append_text(coloured(values[at], below, seen.low, seen.high))
        else:
            label.append(shaded(values[at], seen.low, seen.high))
        found.append(label)
    return found


def _axis(seen: Heat) -> Text:
    """Return when the map begins and ends, in local time."""
    if not len(seen.times):
        return Text("")
    first, last = (time.strftime("%H:%M:%S", time.localtime(float(seen.times[at]))) for at in (0, -1))
    space = max(1, len(seen.times) - len(first) - len(last))
    return Text(" " * (_LABEL + 1) + first + " " * space + last, style="dim", no_wrap=True, overflow="crop")
