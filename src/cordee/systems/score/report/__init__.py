"""Pages of a scoring: JSON, text and one HTML file, rendered once; fragments for a run's own report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cordee.runs.folder import write_atomically
from cordee.runs.report_folder import report_folder

if TYPE_CHECKING:
    from cordee.systems.score.result import Saturation
    from cordee.systems.score.trace.model import ScoreTrace


def render(results: Sequence[Saturation], traces: Sequence[ScoreTrace], folder: Path) -> Path:
    """Write score.json, score.txt and score.html below `folder`/report; returns the HTML's path.

    Args:
        results: scorings; several stand side by side, each held against the first.
        traces: the samples of each, in the same order; read metric by metric.
        folder: a run's or a recording's.

    Raises:
        RunFolderError: the pages cannot be written.
    """
    from cordee.systems.score.document import document
    from cordee.systems.score.report.collect import collect
    from cordee.systems.score.report.page import render_page
    from cordee.systems.score.report.summary import comparison_lines, summary_lines

    place = report_folder(Path(folder))
    collected = [collect(result, trace) for result, trace in zip(results, traces, strict=True)]
    lines = [line for result in results for line in [*summary_lines(result), ""]] + comparison_lines(results)
    documents = [document(result) for result in results]
    whole = documents[0] if len(documents) == 1 else {"schema": "cordee.scores/1", "scores": documents}
    write_atomically(place / "score.txt", "\n".join(lines).rstrip() + "\n", below=place.parent)
    write_atomically(place / "score.json", json.dumps(whole, allow_nan=False), below=place.parent)
    page = place / "score.html"
    write_atomically(page, render_page(collected), below=place.parent)
    return page
