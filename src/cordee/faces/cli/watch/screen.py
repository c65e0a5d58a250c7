"""The live terminal view of a run: it is read and drawn until it has ended or a key ends the view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from cordee.core.stats import finite
from cordee.faces.cli.watch import views
from cordee.faces.cli.watch.keys import leaving
from cordee.faces.cli.watch.state import WatchState
from cordee.runs.folder import RunFolder
from cordee.runs.state import RunState
from cordee.systems.score.views import Scores

_REFRESH_S = 0.5
_MANY_RANKS, _SLOW_S = 1000, 2.0
_PIPE_HEIGHT = 50


def watch(folder: Path, *, once: bool = False) -> RunState:
    """Show a run until it has ended or q is pressed, and return its last state; with `once` print one picture.

    Raises:
        RunFolderError: the journal cannot be read, for instance because the folder was deleted.
    """
    view = WatchScreen(RunFolder(folder))
    console = Console()
    view.read()
    if once:
        height = console.height if console.is_terminal else _PIPE_HEIGHT
        console.print(view.picture(height, console.width))
        return view.state
    view.scores = Scores()
    try:
        with leaving() as leaves, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(view.picture(console.height, console.width), refresh=True)
                if leaves(_REFRESH_S if len(view.state.ranks) < _MANY_RANKS else _SLOW_S) or view.state.ended:
                    break
                view.read()
    finally:
        view.scores.close()
    console.print(view.picture(console.height, console.width))
    return view.state


class WatchScreen(WatchState):
    """The screen of `cordee watch`, as a picture and as a document."""

    def picture(self, height: int, width: int = 100) -> RenderableType:
        """Return the whole screen, at most `height` rows."""
        return views.overview(self, height, width)

    def document(self) -> dict[str, Any]:
        """Return what the view shows as one JSON document, `cordee.watch/1`."""
        from cordee.faces.report.run_document import run_document

        samples = self.samples
        return run_document(self.folder, self.state) | {
            "schema": "cordee.watch/1",
            "waits": self.waits or None,
            "score": self.score.get("score") if self.score else None,
            "score_text": self.score_text or None,
            "steps": {str(rank): step for rank, step in sorted(self.steps.items())},
            "logged": {
                name: {"last": finite(values[-1]), "values": len(values)} for name, values in self.values.items()
            },
            "rows": [views.row_document(samples, row) for row in samples.rows],
            "differing": [
                {
                    "rank": one.rank,
                    "in": one.title,
                    "unit": one.unit,
                    "value": finite(one.value),
                    "median": finite(one.median),
                    "deviations": finite(one.deviations),
                }
                for one in samples.differing
            ],
            "stages": [
                {"stage": one.name, "ranks": one.ranks, "of": one.title, "unit": one.unit, "mean": finite(one.value)}
                for one in samples.stages()
            ],
            "trouble": samples.trouble or None,
        }
