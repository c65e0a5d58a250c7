"""`cordee nodes again`."""

from __future__ import annotations

from typing import Any

import click

from cordee.core.draw.clean import clean, one_line
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_folders, runs_option


@click.command("again")
@click.option(
    "--on",
    "cluster",
    metavar="CLUSTER",
    help="Cluster whose rules hold (default: CORDEE_ON, else the one of this Slurm, else local).",
)
@runs_option
@json_option
def again_command(cluster: str | None, runs: str | None, as_json: bool) -> None:
    """List nodes and switches that the findings of several runs name, with these runs.

    \b
    Example:
      cordee nodes again
    """
    from cordee.systems.rules.views import places_again, site_rules

    places = places_again(runs_folders(runs), site_rules(cluster))
    if as_json:
        print_json({"schema": "cordee.nodes-again/1", "places": places})
        return
    if not places:
        click.echo("no node or switch is in the findings of several runs", err=True)
    for place in places:
        for line in place_lines(place):
            click.echo(line)


def place_lines(place: dict[str, Any]) -> list[str]:
    """Return a place for people: what it is, the newest runs that name it, what to do."""
    below = f" ({', '.join(place['nodes'][:8])})" if place["kind"] == "switch" else ""
    lines = [f"{place['kind']} {place['name']}{below}: {len(place['runs'])} runs  [{place['rule']}: {place['action']}]"]
    for run in place["runs"][-5:]:
        lines.append(f"  {run['at'][:19]}  {run['run']}  {run['finding']}: {one_line(run['text'], 100)}")
    return [clean(line) for line in lines] + [f"  next: {place['next']}"]
