"""`cordee topology`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cordee.core.errors import CordeeError, RunNotFound, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument

if TYPE_CHECKING:
    from cordee.systems.explain.topology.views import View

_JOB = re.compile(r"\d+([_+]\d+)?")


@click.command()
@run_argument
@click.option("--nodes", metavar="LIST", help="These nodes instead of a run's or job's, as n[1-4].")
@click.option("--topology", "file", type=click.Path(path_type=Path), metavar="FILE", help="What describes the network.")
@click.option(
    "--on", "cluster", metavar="CLUSTER", help="Whose network it is (default: the run's cluster, else this one)."
)
@click.option("--mesh", metavar="SIZES", help="Coordinates by rank number, the fastest first: tp=4,pp=8,dp=84.")
@click.option("--filter", "filtered", default="", metavar="WHAT", help="Only these ranks or nodes: dp=0,pp=6-7.")
@click.option("--colour", "--color", metavar="WHAT", help="Of the picture: a dimension, state, job, or any metric.")
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write the picture.")
@runs_option
@json_option
def command(
    run: str,
    nodes: str | None,
    file: Path | None,
    cluster: str | None,
    mesh: str | None,
    filtered: str,
    colour: str | None,
    svg: Path | None,
    runs: str | None,
    as_json: bool,
) -> None:
    """Say where RUN sits on the network: a run (default: the last one), or the id of any job of Slurm.

    \b
    Example:
      cordee topology last --filter pp=0-1 --colour dp --svg place.svg
    """
    from cordee.core.draw.boxes import alone
    from cordee.core.draw.clean import clean

    if svg is None and colour is not None:
        raise UsageError("--colour is about the picture", given=colour, next="add --svg FILE")
    view = _view(run, nodes, runs, cluster, file=file, mesh=mesh, filtered=filtered)
    if svg is not None:
        _write(svg, alone(view.svg(colour)))
    if as_json:
        print_json(view.document())
    else:
        for line in view.lines():
            click.echo(clean(line))


def _view(run: str, nodes: str | None, runs: str | None, cluster: str | None, **how: Any) -> View:
    """Return the view of nodes, of a run, or of a scheduler's job, whichever is meant."""
    from cordee.backends.cluster_here import cluster_of_nodes
    from cordee.backends.network.sources import nodes_of_job
    from cordee.core.hostlist import expand_nodes
    from cordee.systems.explain.topology.job import PlacedJob
    from cordee.systems.explain.topology.views import view_of_job, view_of_run

    if nodes is not None:
        try:
            names = tuple(dict.fromkeys(expand_nodes(nodes)))
        except CordeeError as error:
            raise UsageError(f"--nodes: {error.text}", given=error.given, allowed=error.allowed) from None
        if not names:
            raise UsageError("--nodes names none", given=nodes, allowed="n[1-4],login1")
        return view_of_job(PlacedJob("these nodes", names), cluster_of_nodes(cluster), **how)
    try:
        folder = found(run, runs)
    except RunNotFound:
        if not _JOB.fullmatch(run):
            raise
        scheduler, of_job = nodes_of_job(run)
        job = PlacedJob(f"job {run}", tuple(dict.fromkeys(of_job)))
        return view_of_job(job, cluster_of_nodes(cluster, scheduler), **how)
    from cordee.telemetry.store.reader import open_run

    return view_of_run(open_run(folder.root), cluster=cluster, **how)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        allowed = "a file in a folder that you may write"
        raise UsageError(f"cannot write the picture: {error.strerror}", given=str(path), allowed=allowed) from None
