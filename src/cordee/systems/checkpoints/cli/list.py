"""`cordee checkpoint list`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option, runs_option

SCHEMA = "cordee.checkpoints/1"


@click.command("list")
@click.argument("target", metavar="PATH|RUN", default="last", required=False)
@runs_option
@json_option
def command(target: str, runs: str | None, as_json: bool) -> None:
    """List the checkpoints of a RUN, or those in a folder: step, size, which run made them, whether they are whole.

    A run's checkpoints are those in the folder that it saves in, also other runs', on its nodes and in its object store. Looked
    at are names and sizes; `verify` reads all bytes.

    \b
    Example:
      cordee checkpoint list
      cordee checkpoint list checkpoints
    """
    from cordee.core.draw.clean import clean
    from cordee.core.errors import CordeeError
    from cordee.core.units import format_size, utc_text
    from cordee.job.cluster import load_cluster
    from cordee.systems.checkpoints.library import in_store, library_of, on_nodes
    from cordee.systems.checkpoints.storage import purge_text

    library = library_of(target, runs)
    newest = next((one for one in reversed(library.checkpoints) if one.complete), None)
    tier = load_cluster(cluster_name(None)).tier_at(library.path) if newest is not None else None
    purged = purge_text(newest.name, newest.path, tier[1].purge) if newest and tier and tier[1].purge else ""
    shown, unseen = [*library.checkpoints, *on_nodes(library)], ""
    try:
        shown += in_store(library)
    except CordeeError as error:
        unseen = f"its object store cannot be asked: {error.text}"
        click.echo(clean(unseen), err=True)
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "path": library.path,
                "checkpoints": [one.document() for one in shown],
                "purged": purged or None,
                "unseen": unseen or None,
            }
        )
        return
    for one in shown:
        step = "-" if one.step is None else str(one.step)
        state = "" if one.complete else f"  not whole: {one.reason}"
        where = utc_text(one.time) if one.time else f"on nodes {one.path}" if one.tier == "nodes" else f"in {one.path}"
        made = f"{one.run or 'unknown run'}, {where}"
        click.echo(clean(f"{one.name:<24} step {step:<10} {format_size(one.bytes):>9}  {made}{state}"))
    if purged:
        click.echo(clean(purged))
    if not shown:
        click.echo(clean(f"no checkpoint lies in {library.path}"))
