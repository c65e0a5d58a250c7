"""`cordee env resolve`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.environments.cli.options import edf_arguments, every_fault


@click.command("resolve")
@edf_arguments
@json_option
def command(file: str, cluster: str | None, lenient: bool, as_json: bool) -> None:
    """Print what an EDF comes to: nothing in it is inherited, relative or to be expanded.

    FILE is a path when it begins with `.` or `/` or ends with `.toml`, else a name on the search path. As text it is an EDF.

    \b
    Example:
      cordee env resolve env.toml
      cordee env resolve pytorch --json
    """
    from cordee.systems.environments.prepare import resolve_here
    from cordee.systems.environments.start import site_words

    with every_fault(as_json):
        resolved = resolve_here(file, site_words(cluster_name(cluster)), lenient=lenient)
    print_findings(list(resolved.findings))
    if as_json:
        print_json({**resolved.environment.document(), "additions": dict(resolved.additions)})
    else:
        click.echo(resolved.text(), nl=False)
