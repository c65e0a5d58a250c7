"""Pages of a scoring: JSON, text, one HTML file and a PDF, rendered once; fragments for a run's own report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cordee.errors import RunFolderError
from cordee.runs.folder import write_atomically

if TYPE_CHECKING:
    from cordee.insight.saturation.result import Saturation
    from cordee.insight.saturation.trace import Trace


def render(results: Sequence[Saturation], traces: Sequence[Trace], folder: Path) -> Path:
    """Write score.json, score.txt, score.html and score.pdf below `folder`/report; returns the HTML's path.

    Args:
        results: scorings; several stand side by side, each held against the first.
        traces: the samples of each, in the same order; read metric by metric.
        folder: a run's or a recording's.

    Raises:
        RunFolderError: the pages cannot be written.
    """
    from cordee.insight.saturation.document import document
    from cordee.report.saturation.collect import collect
    from cordee.report.saturation.page import render_page
    from cordee.report.saturation.pdf import render_pdf
    from cordee.report.saturation.summary import comparison_lines, summary_lines

    place = Path(folder) / "report"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"cannot make the folder of reports: {error.strerror}",
            given=str(place),
            allowed="a folder on a disk with space that you may write",
            next="copy the recording to where you may write, and score it there",
        ) from error
    collected = [collect(result, trace) for result, trace in zip(results, traces, strict=True)]
    lines = [line for result in results for line in [*summary_lines(result), ""]] + comparison_lines(results)
    documents = [document(result) for result in results]
    whole = documents[0] if len(documents) == 1 else {"schema": "cordee.scores/1", "scores": documents}
    write_atomically(place / "score.txt", "\n".join(lines).rstrip() + "\n")
    write_atomically(place / "score.json", json.dumps(whole, allow_nan=False))
    write_atomically(place / "score.pdf", render_pdf(collected))
    page = place / "score.html"
    write_atomically(page, render_page(collected))
    return page
