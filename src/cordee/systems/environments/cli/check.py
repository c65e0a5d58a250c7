"""`cordee env check`."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE, EXIT_USAGE, DocumentError
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.environments.cli.options import edf_arguments


@click.command("check")
@edf_arguments
@click.option(
    "--engine", metavar="ENGINE", help="The engine that counts (default: the profile's, else the first that can)."
)
@json_option
def command(file: str, cluster: str | None, lenient: bool, engine: str | None, as_json: bool) -> None:
    """Name every capability, path or image that FILE needs and this machine does not have. Changes nothing.

    Exit code 2: the document is wrong; 1: it is right, and cannot run here; 0: it can.

    \b
    Example:
      cordee env check env.toml
      cordee env check env.toml --engine podman --json
    """
    from cordee.systems.environments.machine_check import SCHEMA, check
    from cordee.systems.environments.prepare import resolve_here, store_of
    from cordee.systems.environments.start import site_words

    site = site_words(cluster_name(cluster))
    try:
        resolved = resolve_here(file, site, lenient=lenient)
    except DocumentError as error:
        if not as_json:
            raise
        findings = [finding.document() for finding in error.findings]
        print_json({"schema": SCHEMA, "valid": False, "runnable": False, "engine": None, "findings": findings})
        raise click.exceptions.Exit(EXIT_USAGE) from None
    checked = check(resolved, store_of(site), engine or site.engine)
    if as_json:
        print_json(checked.document())
    else:
        print_findings(checked.findings)
        what = f"can run here, by the engine {checked.engine}" if checked.runnable else "cannot run here"
        click.echo(f"{file}: {what}")
    raise click.exceptions.Exit(EXIT_DONE if checked.runnable else EXIT_BAD)
