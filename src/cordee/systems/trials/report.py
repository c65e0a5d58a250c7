"""What a farm or a sweep did, in a run's report: counts, what failed; of a sweep which trial was best and which parameter mattered."""

from __future__ import annotations

from html import escape
from itertools import compress
from typing import Any

from cordee.systems.trials.node.task_states import HALVED
from cordee.systems.trials.pictures import pictures
from cordee.systems.trials.shown import Farm, has_tasks
from cordee.systems.trials.sweeps import Sweep, is_sweep
from cordee.telemetry.shown.section import Reported, Section

_MOST_FAILED = 10


class FarmSection(Section):
    """Of runs without tasks it has nothing to say."""

    name = key = "tasks"
    place = "phases"

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported)
        folder = reported.run.folder
        self.farm = Farm(folder.root) if has_tasks(folder.root) else None
        self.sweep = Sweep(folder) if self.farm is not None and is_sweep(folder) else None

    def document(self) -> dict[str, Any] | None:
        if self.farm is None:
            return None
        counts = self.farm.document(self.reported.run.folder.id)
        if self.sweep is None:
            return counts
        told = self.sweep.document()
        return {**counts, "best": self.sweep.best, "front": told["front"], "importance": told["importance"]}

    def lines(self) -> list[str]:
        return [line[:80] for line in self._lines()]

    def _lines(self) -> list[str]:
        if self.farm is None:
            return []
        counts = self.farm.document("")
        lines = ["Tasks" if self.sweep is None else "Trials"]
        early = sum(trial["state"] == HALVED for trial in self.sweep.trials) if self.sweep is not None else 0
        words = f", {early} of them ended early" if early else ""
        lines.append(f"  {counts['done']} of {counts['tasks']} done{words}, {counts['failed']} failed")
        for row in self.farm.rows("failed")[:_MOST_FAILED]:
            why = row.get("text") or row.get("signal") or row.get("reason")
            lines.append(f"  {row['id']}: {why if row.get('code') is None else 'exit code ' + str(row['code'])}")
        return lines + [f"  {line}" for line in self._about_sweep()]

    def _about_sweep(self) -> list[str]:
        """Return what a sweep found, in words."""
        if self.sweep is None or self.sweep.best is None:
            return []
        best = self.sweep.best
        lines = []
        for trial in self.sweep.front[:_MOST_FAILED] if len(self.sweep.goals) > 1 else [best]:
            values = " ".join(f"{name}={value}" for name, value in trial["parameters"].items())
            pairs = zip(self.sweep.goals, trial["values"], strict=True)
            told = ", ".join(f"{metric} = {value:.6g}" for (_, metric), value in pairs)
            lines.append(f"best: {told}, trial {trial['id']}: {values}")
        shares = self.sweep.document()["importance"] or {}
        return lines + [
            f"{name} explains {share:.0%}" for name, share in sorted(shares.items(), key=lambda one: -one[1])
        ]

    def style(self) -> str:
        return "#tasks .line { stroke-width: 5px; stroke-linecap: round; }"

    def html(self) -> str:
        if self.farm is None:
            return ""
        head, *rest = (escape(line.strip()) for line in self._lines())
        text = f"<h2>{head}</h2><p>{'<br>'.join(rest)}</p>"
        charts = pictures(self.sweep) if self.sweep is not None else []
        figures = [f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in charts]
        is_wide = ['class="wide"' in svg for _, svg in charts]
        wide, narrow = ("".join(compress(figures, (one is of for one in is_wide))) for of in (True, False))
        return f'<section id="tasks">{text}{wide}<div class="charts">{narrow}</div></section>'


SECTIONS = (FarmSection,)
