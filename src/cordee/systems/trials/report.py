"""What a farm or a sweep did, in a run's report: counts, what failed; of a sweep which trial was best and which parameter mattered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from cordee.core.draw.charts import ChartLine, line_chart
from cordee.systems.trials.shown import Farm, has_tasks
from cordee.systems.trials.sweeps import Sweep
from cordee.telemetry.shown.section import Reported, Section

_MOST_FAILED, _MOST_SLICES, _MOST_POINTS = 10, 8, 200
_FAR = 100.0  # a range that spans more is drawn by its logarithm


class FarmSection(Section):
    """Of runs without tasks it has nothing to say."""

    name = key = "tasks"
    place = "phases"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        folder = reported.run.folder
        self.farm = Farm(folder.root) if has_tasks(folder.root) else None
        trials = ((reported.step.get("systems") or {}).get("trials") or {}).get("metric")
        self.sweep = Sweep(folder) if self.farm is not None and trials else None

    def document(self) -> dict[str, Any] | None:
        if self.farm is None:
            return None
        counts = self.farm.document(self.reported.run.folder.id)
        if self.sweep is None:
            return counts
        return {**counts, "best": self.sweep.best, "importance": self.sweep.document()["importance"]}

    def lines(self) -> list[str]:
        if self.farm is None:
            return []
        counts = self.farm.document("")
        lines = ["Tasks" if self.sweep is None else "Trials"]
        lines.append(f"  {counts['done']} of {counts['tasks']} done, {counts['failed']} failed")
        for row in self.farm.rows("failed")[:_MOST_FAILED]:
            why = row.get("text") or row.get("signal") or row.get("reason")
            lines.append(f"  {row['id']}: {why if row.get('code') is None else 'exit code ' + str(row['code'])}"[:80])
        return lines + [f"  {line}"[:80] for line in self._about_sweep()]

    def _about_sweep(self) -> list[str]:
        """Return what a sweep found, in words."""
        if self.sweep is None or self.sweep.best is None:
            return []
        best = self.sweep.best
        values = " ".join(f"{name}={value}" for name, value in best["parameters"].items())
        lines = [f"best: {self.sweep.part['metric']} = {best['value']:.6g}, trial {best['id']}: {values}"]
        shares = self.sweep.document()["importance"] or {}
        return lines + [
            f"{name} explains {share:.0%}" for name, share in sorted(shares.items(), key=lambda one: -one[1])
        ]

    def style(self) -> str:
        return "#tasks .line { stroke-width: 5px; stroke-linecap: round; }"

    def html(self) -> str:
        if self.farm is None:
            return ""
        head, *rest = (escape(line.strip()) for line in self.lines())
        text = f"<h2>{head}</h2><p>{'<br>'.join(rest)}</p>"
        charts = slices(self.sweep) if self.sweep is not None else []
        figures = "".join(f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in charts)
        return f'<section id="tasks">{text}<div class="charts">{figures}</div></section>'


def slices(sweep: Sweep) -> list[tuple[str, str]]:
    """Return, for each parameter that has numbers or choices, a picture of the trials' values over it: name and SVG."""
    done = [trial for trial in sweep.trials if trial["value"] is not None]
    if len(done) < 2:
        return []
    shares = sweep.document()["importance"] or {}
    names = sorted(done[0]["parameters"], key=lambda name: -shares.get(name, 0.0))
    metric, pictures = str(sweep.part["metric"]), []
    for name in names[:_MOST_SLICES]:
        places, label, choices = _places([trial["parameters"][name] for trial in done], name)
        line = _dots(metric, places, [trial["value"] for trial in done])
        share = f", explains {shares[name]:.0%}" if name in shares else ""
        title = f"{metric} over {name}{choices}{share}"
        pictures.append((title, line_chart(title, [line], x_label=label)))
    return pictures


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


SECTIONS = (FarmSection,)
