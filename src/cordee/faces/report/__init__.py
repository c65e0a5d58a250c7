"""A run's report: rendered once as text, JSON and one HTML file, read by the command line and the web pages."""

from __future__ import annotations

import json
from pathlib import Path

from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.report_folder import report_folder


def render(run: str | Path) -> Path:
    """Write report/index.html, report.json and report.txt of a run, also while it goes on; returns the HTML's path.

    Raises:
        RunFolderError: the journal cannot be read, or the reports cannot be written.
    """
    from cordee.faces.report.data import collect
    from cordee.faces.report.document import report_document
    from cordee.faces.report.html import render_html
    from cordee.faces.report.text import render_text

    folder = RunFolder(run)
    data = collect(folder)
    place = report_folder(folder.root)
    write_atomically(place / "report.txt", render_text(data), below=folder.root)
    document = json.dumps(report_document(data), indent=1, allow_nan=False)
    write_atomically(place / "report.json", document, below=folder.root)
    page = place / "index.html"
    write_atomically(page, render_html(data), below=folder.root)
    return page
