"""`cordee env explain`."""

from __future__ import annotations

import os

import click

from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.environments.cli.options import edf_arguments, every_fault


@click.command("explain")
@edf_arguments
@click.argument("key", required=False)
@json_option
def command(file: str, key: str | None, cluster: str | None, lenient: bool, as_json: bool) -> None:
    """Say for every value of an EDF which file and line, the image or the host gave it, and what would hold otherwise.

    KEY narrows it down: `image`, `mounts`, `env.PATH`, `annotations.com.hooks`. What an image says is known where the image
    is on this machine.

    \b
    Example:
      cordee env explain env.toml
      cordee env explain env.toml env.PATH
    """
    from cordee.systems.environments.edf.explain import SCHEMA, explain, explain_key, explained_text
    from cordee.systems.environments.prepare import resolve_here
    from cordee.systems.environments.start import site_words

    with every_fault(as_json):
        resolved = resolve_here(file, site_words(cluster_name(cluster)), lenient=lenient)
    config = resolved.environment.config
    values = explain_key(key, resolved, config, os.environ) if key else explain(resolved, config, os.environ)
    known = resolved.environment.root is not None or config.digest is not None
    print_findings(list(resolved.findings))
    if as_json:
        document = {
            "schema": SCHEMA,
            "files": [str(path) for path in resolved.files],
            "image_known": known,
            "values": [value.document() for value in values],
        }
        print_json(document)
        return
    click.echo(explained_text(values), nl=False)
    if resolved.environment.startup and (not key or key.startswith("env")):
        click.echo("what the start-up commands do to variables is not known before they run", err=True)
    if not known:
        click.echo("what the image says is not known: it is not on this machine", err=True)
