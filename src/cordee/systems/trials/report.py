"""What a farm or a sweep did, in a run's report: counts, what failed; of a sweep which trial was best and which parameter mattered."""

from __future__ import annotations

from html import escape
from itertools import compress
from typing import Any

from cordee.systems.trials.pictures import pictures
from cordee.systems.trials.shown import Farm, has_tasks
from cordee.systems.trials.sweeps import Sweep, is_sweep
from cordee.systems.trials.views import told
from cordee.telemetry.shown.section import Reported, Section


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
        return [line[:80] for line in told(self.farm, self.sweep)] if self.farm is not None else []

    def style(self) -> str:
        return "#tasks .line { stroke-width: 5px; stroke-linecap: round; }"

    def html(self) -> str:
        if self.farm is None:
            return ""
        head, *rest = (escape(line.strip()) for line in told(self.farm, self.sweep))
        text = f"<h2>{head}</h2><p>{'<br>'.join(rest)}</p>"
        charts = pictures(self.sweep) if self.sweep is not None else []
        figures = [f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in charts]
        is_wide = ['class="wide"' in svg for _, svg in charts]
        wide, narrow = ("".join(compress(figures, (one is of for one in is_wide))) for of in (True, False))
        return f'<section id="tasks">{text}{wide}<div class="charts">{narrow}</div></section>'


SECTIONS = (FarmSection,)
