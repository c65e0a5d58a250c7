"""A run's report: rendered once as text, JSON and one HTML file, read by the command line and the web pages."""

from __future__ import annotations

import json
from pathlib import Path

from cordee.errors import RunFolderError
from cordee.runs.folder import RunFolder, write_atomically


def render(run: str | Path) -> Path:
    """Write report/index.html, report.json and report.txt of a run, also while it goes on; returns the HTML's path.

    Raises:
        RunFolderError: the journal cannot be read, or the reports cannot be written.
    """
    from cordee.report.data import collect
    from cordee.report.document import report_document
    from cordee.report.html import render_html
    from cordee.report.text import render_text

    folder = RunFolder(run)
    data = collect(folder)
    try:
        folder.report.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"cannot make the folder of reports: {error.strerror}",
            given=str(folder.report),
            allowed="a folder on a disk with space that you may write",
            next="copy the run's folder to where you may write, and render it there",
        ) from error
    write_atomically(folder.report / "report.txt", render_text(data))
    write_atomically(folder.report / "report.json", json.dumps(report_document(data), indent=1, allow_nan=False))
    page = folder.report / "index.html"
    write_atomically(page, render_html(data))
    return page
