"""What `cordee score DIR...` does."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cordee.cli.output import print_json


def score_folders(folders: Sequence[str], *, as_json: bool) -> None:
    """Score recordings and runs and print what comes of it.

    Raises:
        CordeeError: one of them cannot be scored.
    """
    from cordee.insight.saturation.document import document
    from cordee.insight.saturation.load import load
    from cordee.insight.saturation.score import score

    found = [score(load(folder)) for folder in folders]
    if as_json:
        documents = [document(saturation) for saturation in found]
        print_json(documents[0] if len(documents) == 1 else {"schema": "cordee.scores/1", "scores": documents})
        return
    for saturation in found:
        shares = saturation.shares
        if shares.score is None:
            click.echo(f"{saturation.job.name}: not scored, nothing was measured")
            continue
        click.echo(
            f"{saturation.job.name}: score {shares.score:.1f} = 100 x time {shares.time:.2f} x breadth {shares.breadth:.2f}"
            f" x depth {shares.depth:.2f} (hardware saturation, not speed)"
        )
