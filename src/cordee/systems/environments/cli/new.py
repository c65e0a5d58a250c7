"""`cordee env new`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option

SCHEMA = "cordee.environment-catalogue/1"


@click.command("new")
@click.argument("name", required=False)
@click.option("--fabric", metavar="FABRIC", help="slingshot, infiniband, efa or ethernet (default: this machine's).")
@click.option("--to", "folder", metavar="DIR", default=".", help="Write into this folder (default: the current one).")
@json_option
def command(name: str | None, fabric: str | None, folder: str, as_json: bool) -> None:
    """Write the EDF NAME of the catalogue, and its vetting protocol; without NAME list what there is.

    Every setting has its reason in the line above it. They are yours from then on: nothing refers back to the catalogue.

    \b
    Example:
      cordee env new
      cordee env new pytorch-cuda --fabric slingshot
    """
    from cordee.systems.environments.ready.catalogue import FABRICS, fabric_here, ready_environments, write_ready

    here = fabric_here()
    if name is None:
        found = ready_environments()
        if as_json:
            listed = [each._asdict() for each in found]
            print_json({"schema": SCHEMA, "environments": listed, "fabrics": list(FABRICS), "fabric_here": here})
            return
        for each in found:
            click.echo(f"{each.name:<14} {each.about}")
        click.echo(f"fabrics: {', '.join(FABRICS)}; this machine has {here}")
        return
    paths = write_ready(name, fabric or here, Path(folder))
    if as_json:
        print_json({"schema": SCHEMA, "fabric": fabric or here, "files": [str(path) for path in paths]})
        return
    for path in paths:
        click.echo(path)
    click.echo(
        f"its baseline is yours to measure, on a node that is well: cordee env doctor {paths[0]} --keep", err=True
    )
