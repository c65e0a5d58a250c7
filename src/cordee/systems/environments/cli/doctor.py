"""`cordee env doctor`."""

from __future__ import annotations

import os

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option


@click.command("doctor")
@click.argument("file")
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose profile counts (default: CORDEE_ON, else local).")
@click.option("--engine", metavar="ENGINE", help="By this engine (default: the profile's, else the first that can).")
@click.option(
    "--ranks", metavar="N", default=2, type=click.IntRange(1, 64), help="Of the collective without GPUs (default 2)."
)
@click.option("--keep", is_flag=True, help="Keep what is reached now as the baseline, beside FILE (.baseline.json).")
@json_option
def command(file: str, cluster: str | None, engine: str | None, ranks: int, keep: bool, as_json: bool) -> None:
    """Try the environment FILE on this machine: it is started, its GPUs are counted, and ranks of it add up numbers.

    On a node with GPUs NCCL says which network it would use: a fall back to TCP where there is a fast fabric is a failure.
    Where FILE has a baseline, what is reached now is held against it: slower is a warning, half as fast a failure.
    Exit code 1: something failed; 0: nothing did, though some may be unknown here.

    \b
    Example:
      cordee env doctor env.toml
      cordee env doctor env.toml --keep
      srun -N1 --gpus=4 cordee env doctor env.toml
    """
    from cordee.systems.environments.prepare import resolve_here
    from cordee.systems.environments.ready.baseline import against_baseline, keep_baseline
    from cordee.systems.environments.ready.doctor import SCHEMA, examine
    from cordee.systems.environments.start import site_words

    site = cluster_name(cluster)
    edf = resolve_here(file, site_words(site)).files[-1]
    trials = examine(file, site, engine, ranks, os.environ)
    if keep:
        kept = keep_baseline(edf, trials, ranks)
        click.echo(f"kept as {kept}", err=True)
    else:
        trials = against_baseline(edf, trials, ranks)
    failed = any(trial.status == "fail" for trial in trials)
    if as_json:
        document = {"schema": SCHEMA, "works": not failed, "trials": [trial.document() for trial in trials]}
        print_json(document)
    else:
        for trial in trials:
            click.echo(f"{trial.status:<8} {trial.what:<11} {trial.text}")
            if trial.next and trial.status != "pass":
                click.echo(f"{'':<20} {trial.next}")
    raise click.exceptions.Exit(EXIT_BAD if failed else EXIT_DONE)
