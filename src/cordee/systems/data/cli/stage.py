"""`cordee data stage`."""

from __future__ import annotations

import os

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.machine.processes.tree import read_process
from cordee.systems.data.cli.named import catalogue_option, place_of

SCHEMA = "cordee.data.stage/1"


def _caller() -> int:
    """Return the process for which it stays: the batch script or terminal that this is part of, in a run its node's agent."""
    leader = read_process(os.getsid(0))
    if leader is None:
        return os.getppid()
    return leader.parent if "CORDEE_RUN_ID" in os.environ and leader.parent > 1 else leader.pid


@click.command("stage")
@click.argument("path", metavar="DATASET")
@click.option(
    "--to", type=click.Choice(["auto", "memory", "node"]), default="auto", show_default=True, help="Where to."
)
@click.option(
    "--claim",
    type=click.IntRange(1),
    metavar="PID",
    help="Whose it is while it lives (default: the script's, or the run's).",
)
@click.option("--packed", is_flag=True, help="Leave an archive packed.")
@click.option("--prepare", default="", metavar="COMMAND", help="Run this once in its folder, before anyone reads it.")
@catalogue_option
@json_option
def command(
    path: str, to: str, claim: int | None, packed: bool, prepare: str, cluster: str | None, as_json: bool
) -> None:
    """Bring a data set to this node's memory or disk, and print where it is then; also inside any sbatch script.

    DATASET is a folder, a packed set, an archive (which is unpacked), an s3:// address, or a name as for `survey`. `auto`
    takes memory for up to 10 GB, else the node's disk, and reads in place what fits nowhere. All jobs of a person on a node share
    one copy. It stays while the batch script, terminal or run that called lives, or another that claimed it;
    after that it goes when its room is needed, or after a day.

    \b
    Example:
      CORPUS=$(cordee data stage /store/corpus)
      cordee data stage s3://bucket/corpus.tar --to node --prepare "python tokenise.py"
    """
    from cordee.core.draw.clean import clean
    from cordee.core.units import format_duration, format_size
    from cordee.job.cluster import load_cluster
    from cordee.systems.data.cli.progress import progress
    from cordee.systems.data.stage import stage

    profile = load_cluster(cluster_name(cluster))
    with progress("staging", 0, 0) as tell:
        done = stage(
            place_of(path, cluster),
            profile,
            to=to,  # type: ignore[arg-type]
            claim=claim or _caller(),
            unpacked=not packed,
            prepare=prepare,
            tell=tell,
        )
    if as_json:
        print_json({"schema": SCHEMA, **done.document()})
        return
    how = f"{format_size(done.source_bytes)} read in {format_duration(done.seconds)}; " if done.source_bytes else ""
    click.echo(clean(f"{done.tier}: {how}{done.reason}"), err=True)
    click.echo(done.path)
