"""What `cordee score DIR... --against BASELINE` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cordee.cli.output import print_json
from cordee.errors import EXIT_BAD, EXIT_DONE, EXIT_USAGE

if TYPE_CHECKING:
    from cordee.insight.saturation.judge import Judgement

_VERDICTS = {
    "worse": "worse than the baseline, beyond its noise",
    "same": "not worse than the baseline: the difference is noise",
    "better": "better than the baseline, beyond its noise",
    "unknown": "cannot be judged",
}


def judge_folders(
    folders: Sequence[str], against: str, *, workload: str, anyway: bool, caps: str | None, as_json: bool
) -> None:
    """Score recordings and runs, judge each against a baseline, and exit 1 when one is worse, 2 when one cannot be judged.

    Args:
        against: a file that `cordee score baseline` wrote, or a recording or run.
        caps: a file with caps, None for the person's own and the package's.

    Raises:
        CordeeError: one of them cannot be scored, or the baseline is none.
    """
    from cordee.insight.saturation.against import judge_trace, open_baseline
    from cordee.insight.saturation.caps import read_caps
    from cordee.insight.saturation.document import document
    from cordee.insight.saturation.load import load
    from cordee.insight.saturation.score import score

    table = read_caps(caps)
    baseline = open_baseline(against, table)
    judgements, documents = [], []
    for folder in folders:
        trace = load(folder)
        saturation = score(trace, caps=table)
        judgements.append(judge_trace(trace, saturation, baseline, workload, anyway=anyway))
        if as_json:
            documents.append({**document(saturation), "judgement": judgements[-1].document()})
        else:
            _show(saturation.job.name, judgements[-1])
    if as_json:
        print_json(documents[0] if len(documents) == 1 else {"schema": "cordee.scores/1", "scores": documents})
    codes = [judgement.exit_code for judgement in judgements]
    sys.exit(next((code for code in (EXIT_BAD, EXIT_USAGE) if code in codes), EXIT_DONE))


def _show(name: str, judgement: Judgement) -> None:
    click.echo(f"{name}: {_VERDICTS[judgement.verdict]}")
    for change in judgement.changes:
        click.echo(f"  {'*' if change.decides else ' '} {change.words()}")
    if judgement.changes:
        click.echo(f"  * decides; {judgement.method}")
    for why in judgement.incomparable:
        click.echo(f"  {'compared in spite of' if judgement.forced else 'not comparable'}: {why}")
    for remark in judgement.remarks:
        click.echo(f"  note: {remark}")
    if judgement.incomparable and not judgement.forced:
        click.echo("  next: choose the baseline of this workload and hardware, or compare all the same with --anyway")
    elif judgement.verdict == "unknown":
        click.echo("  next: record for longer (at least 30 samples), or make the baseline of three runs or more")
