"""`cordee data list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option

if TYPE_CHECKING:
    from cordee.systems.data.shared import SharedDataSet


@click.command()
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose catalogue (default: CORDEE_ON, else local).")
@json_option
def command(cluster: str | None, as_json: bool) -> None:
    """List the data sets that the site keeps for all: `from = "NAME"` in [data] reads one, and no copy is made.

    \b
    Example:
      cordee data list --on alps
    """
    from cordee.job.cluster import load_cluster
    from cordee.systems.data.shared import shared_datasets

    profile = load_cluster(cluster_name(cluster))
    found = shared_datasets(profile)
    if as_json:
        datasets = [one.document() for one in found]
        print_json({"schema": "cordee.datasets/1", "cluster": profile.name, "datasets": datasets})
        return
    if not found:
        click.echo(f"{profile.name} has no shared data sets: its profile has no [datasets.NAME]")
    for one in found:
        click.echo(f"{one.name:20} {_held(one)}\n{'':20} {one.path}" + (f" (tier {one.tier})" if one.tier else ""))
        for label, text in (("", one.about), ("from ", one.source), ("licence: ", one.licence), ("", _right(one))):
            if text:
                click.echo(f"{'':20} {label}{text}")


def _held(one: SharedDataSet) -> str:
    from cordee.core.units import format_size

    parts = [one.kind]
    if one.samples is not None:
        parts.append(f"{one.samples:,} samples")
    if one.bytes is not None:
        parts.append(format_size(one.bytes))
    return ", ".join(parts)


def _right(one: SharedDataSet) -> str:
    """Return what stands between this user and the data set; nothing where it can be read."""
    if one.readable or one.readable is None:
        return ""
    if one.group and not one.member:
        return f"not readable: {one.fault or 'you may not read it'}; you are not in the group {one.group}"
    return f"not readable: {one.fault}"
