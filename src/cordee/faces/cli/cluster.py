"""`cordee cluster`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from cordee.core.backends import HERE
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import json_option

if TYPE_CHECKING:
    from cordee.job.profile import ClusterProfile


@click.group()
def command() -> None:
    """Show what Cordée knows of clusters.

    \b
    Example:
      cordee cluster list
      cordee cluster show local
      cordee cluster discover
    """


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List the clusters that have a profile.

    \b
    Example:
      cordee cluster list
    """
    from cordee.job.cluster import list_clusters

    names = list_clusters()
    if as_json:
        print_json({"schema": "cordee.clusters/1", "clusters": names})
    else:
        click.echo("\n".join(names))


@command.command("show")
@click.argument("name", default=HERE, required=False)
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Show the profile of one cluster.

    \b
    Example:
      cordee cluster show local --json
    """
    from cordee.job.cluster import load_cluster

    loaded = load_cluster(name)
    profile = loaded.model_dump(mode="json")
    if as_json:
        print_json({"schema": "cordee.cluster/1", **profile})
        return
    for key, text in _values("", {key: value for key, value in profile.items() if key != "partitions"}):
        click.echo(f"{key:20} {text}")
    if loaded.partitions:
        click.echo(_partitions(loaded))


def _values(prefix: str, table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, text) of everything that is given."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _values(f"{prefix}{key}.", value)
        elif value not in (None, [], False):
            yield prefix + key, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _partitions(profile: ClusterProfile) -> str:
    """Return a table of the partitions, a line for each kind of nodes."""
    from cordee.core.units import format_duration, format_size

    rows: list[tuple[str, ...]] = [("partition", "limit", "nodes", "up", "cores", "memory", "gpus", "features")]
    for name, partition in profile.partitions.items():
        limit = format_duration(partition.max_time) if partition.max_time else "-"
        for shape in partition.shapes:
            memory = format_size(shape.memory) if shape.memory else "-"
            gpus = f"{shape.gpus} {shape.gpu_model or ''}" if shape.gpus else "-"
            counts = ("-" if count is None else str(count) for count in (shape.nodes, shape.up, shape.cores))
            shown = (
                name + ("*" if partition.default else "") + ("" if partition.state == "up" else f" ({partition.state})")
            )
            rows.append((shown, limit, *counts, memory, gpus, ",".join(shape.features or ()) or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


@command.command("discover")
@click.option("--name", metavar="NAME", help="Name of the cluster (default: the scheduler's own name of it).")
@click.option("--scheduler", metavar="NAME", help="Ask this one, where several answer: slurm, htcondor.")
@click.option("--write", is_flag=True, help="Write it into your folder of profiles instead of printing it.")
@click.option("--force", is_flag=True, help="With --write: replace the profile that is there.")
@json_option
def discover_command(name: str | None, scheduler: str | None, write: bool, force: bool, as_json: bool) -> None:
    """Draft a profile of the Slurm or HTCondor that answers here: partitions, limits, machines, GPUs, accounts.

    \b
    Example:
      cordee cluster discover
      cordee cluster discover --name alps --write
    """
    from cordee.backends.profile_draft import draft_profile

    draft, others = draft_profile(name, scheduler)
    if write:
        draft.write(force=force)
    if as_json:
        print_json(draft.document(written=write))
        return
    if not write:
        click.echo(draft.text, nl=False)
    print_findings(list(draft.findings))
    for other in others:
        click.echo(f"cordee: {other} answers here, too: --scheduler {other} drafts its profile", err=True)
    if write:
        click.echo(f"cordee: wrote {draft.path}", err=True)
