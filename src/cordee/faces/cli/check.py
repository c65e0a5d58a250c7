"""`cordee check`."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_DONE, EXIT_USAGE, DocumentError
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import (
    JobCommand,
    cluster_name,
    flags,
    json_option,
    runs_folder,
    runs_option,
    spec_arguments,
)


@click.command(cls=JobCommand)
@spec_arguments
@click.option(
    "--explain", is_flag=True, help="Show where every value came from, and the whole script that would be submitted."
)
@runs_option
@json_option
def command(
    spec: str,
    cluster: str | None,
    nodes: int | None,
    begin: str | None,
    settings: tuple[str, ...],
    explain: bool,
    runs: str | None,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Validate SPEC (default: the cordee.toml here) and show what would run, and where. Changes nothing.

    It takes a script or a command in place of SPEC as `cordee run` does.

    \b
    Example:
      cordee check --on local --explain
      cordee check train.py --lr 1e-3
    """
    from cordee.job.submit.prepare import prepare

    try:
        prepared = prepare(spec, cluster_name(cluster), flags(nodes, settings, begin), runs_folder(runs), program)
    except DocumentError as error:
        if not as_json or not error.findings:
            raise
        document = {"schema": "cordee.check/1", "valid": False, "script": None, "nodes": None, "ranks": None}
        print_json({**document, "findings": [finding.document() for finding in error.findings]})
        raise click.exceptions.Exit(EXIT_USAGE) from None
    if as_json:
        print_json(prepared.document(explain=explain))
    else:
        click.echo(prepared.text(explain=explain), nl=False)
        print_findings(prepared.findings)
    raise click.exceptions.Exit(EXIT_DONE if prepared.valid else EXIT_USAGE)
