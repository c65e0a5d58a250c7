"""What `cordee score DIR...` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cordee.core.errors import RunFolderError
from cordee.core.terminal.output import print_json

if TYPE_CHECKING:
    from cordee.systems.score.cli.baseline_option import BaselineOption
    from cordee.systems.score.result import Saturation
    from cordee.systems.score.trace.model import ScoreTrace


def score_folders(
    folders: Sequence[str],
    *,
    as_json: bool,
    pages: bool,
    caps: str | None,
    rules: Sequence[str],
    against: BaselineOption | None = None,
) -> list[Saturation]:
    """Score recordings and runs, write the pages, print what comes of it and return it.

    Args:
        against: a baseline that each is judged against.
        pages: write score.html, .json and .txt below DIR/report; of several DIRs below the last one's.
        caps, rules: files that come before the others.

    Raises:
        CordeeError: one of them cannot be scored.
    """
    from cordee.systems.score.diagnosis.rules import load_rules
    from cordee.systems.score.document import document
    from cordee.systems.score.load import load
    from cordee.systems.score.roofs import read_caps
    from cordee.systems.score.score import score

    table, known = read_caps(caps), load_rules(rules)
    traces = [load(folder) for folder in folders]
    found = [score(trace, caps=table, rules=known) for trace in traces]
    page = _pages(found, traces, folders[-1]) if pages else None
    judged = against.judge(traces, found) if against is not None else []
    if as_json:
        documents = [{**document(saturation), "report": str(page) if page else None} for saturation in found]
        for each, judgement in zip(documents, judged, strict=False):
            each["judgement"] = judgement.document()
        print_json(documents[0] if len(documents) == 1 else {"schema": "cordee.scores/1", "scores": documents})
    else:
        from cordee.systems.score.cli.text import score_lines, table_lines

        click.echo("\n".join(score_lines(found[0]) if len(found) == 1 else table_lines(found)))
        if page is not None:
            click.echo(f"report  {page}")
        if against is not None:
            click.echo("\n".join(against.lines(found)))
    return found


def _pages(found: Sequence[Saturation], traces: Sequence[ScoreTrace], folder: str) -> Path | None:
    """Write the pages and return the HTML one; None, with words on standard error, where the folder cannot be written."""
    from cordee.systems.score.report import render
    from cordee.telemetry.store.reader import open_run

    try:
        return render(found, traces, open_run(folder).folder.root)
    except RunFolderError as error:
        click.echo(f"cordee: no pages: {error}", err=True)
        return None
