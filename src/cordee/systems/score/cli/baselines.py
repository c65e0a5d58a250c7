"""`cordee score baselines`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cordee.core.errors import EXIT_BAD
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import json_option

BASELINES_SCHEMA = "cordee.baselines/1"


@click.command("baselines")
@click.argument("action", type=click.Choice(["list", "check"]))
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def command(action: str, folder: Path, as_json: bool) -> None:
    """List or check the baselines that a centre and its users keep in FOLDER.

    `check` exits 1 when a file is no baseline, is damaged, or holds paths or addresses of people.

    \b
    Example:
      cordee score baselines list baselines/
      cordee score baselines check baselines/
    """
    from cordee.core.words import counted
    from cordee.systems.score.baselines.baseline import check_folder, spread

    found, findings = check_folder(folder)
    bad = any(finding.severity == "error" for finding in findings)
    if as_json:
        print_json(
            {
                "schema": BASELINES_SCHEMA,
                "valid": not bad,
                "baselines": [{"file": str(path), **baseline.document()} for path, baseline in found],
                "findings": [finding.document() for finding in findings],
            }
        )
    else:
        for path, baseline in found:
            run, score = baseline.runs[0], spread(baseline, "score")
            click.echo(
                f"{path.relative_to(folder)}: {baseline.workload}, {run.devices} x {run.models_text()}, "
                f"{counted(len(baseline.runs), 'run')}, score {score.median:.1f}"
                + (f" ({baseline.note})" if baseline.note else "")
            )
        if not found and not findings:
            click.echo("no baseline in this folder")
        print_findings(findings)
    if action == "check" and bad:
        sys.exit(EXIT_BAD)
