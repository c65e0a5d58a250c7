"""`cordee service batch`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cordee.core.errors import EXIT_BAD
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option

SCHEMA = "cordee.service-batch/1"


@click.command("batch")
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--model", required=True, metavar="RUN|PATH", help="The newest checkpoint of a run, or one at a path.")
@click.option("--to", "folder", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Where answers go.")
@click.option("--config", metavar="DIR", help="Where the model's config.json and tokenizer are.")
@click.option(
    "--tasks",
    type=click.IntRange(1, 100_000),
    help="Parts of the samples; each loads the model (default: what this machine runs at once; elsewhere 8 a node).",
)
@click.option("--tokens", type=click.IntRange(1), default=64, show_default=True, help="The most tokens of an answer.")
@click.option("--batch", "at_once", type=click.IntRange(1), default=16, show_default=True, help="Samples at a time.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--on", "cluster", metavar="CLUSTER", help="Where to run (default: CORDEE_ON, else local).")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Number of nodes.")
@click.option("--cores", type=click.IntRange(1), default=1, show_default=True, help="Cores of each task.")
@click.option("--gpus", type=click.FloatRange(0), default=0.0, help="GPUs of each task; below 1: a share of one.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key of the job, as need.time=2h.")
@json_option
def command(
    samples: Path,
    model: str,
    folder: Path,
    config: str | None,
    tasks: int | None,
    tokens: int,
    at_once: int,
    device: str,
    cluster: str | None,
    nodes: int | None,
    cores: int,
    gpus: float,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Ask a model about each line of SAMPLES, by many tasks in one allocation; each line is answered exactly once.

    A line is a text, or in a .jsonl file an object with `prompt`. DIR/output.jsonl has an answer for each, in their order: `sample`,
    its number from 0, and `text`, or `fault` where the model cannot answer. Whatever is killed, the same command goes on with what is
    not there. Exit code 1: a sample has no answer.

    \b
    Example:
      cordee service batch questions.jsonl --model last --to answers --tasks 16
    """
    from cordee.core.backends import backend
    from cordee.job.cluster import load_cluster
    from cordee.job.terminal.options import cluster_name, flags
    from cordee.systems.inference.batch.run import BatchPlace, begin, run_batch

    folder = folder.absolute()  # the run's processes work in folders of their own
    place = BatchPlace(cluster_name(cluster), flags(nodes, settings), cores, gpus)
    here = not backend(load_cluster(place.cluster).scheduler).abilities.queues and not gpus
    parts = tasks or (max(1, len(os.sched_getaffinity(0)) // cores) if here else 8 * (nodes or 1))
    spec = begin(folder, samples, model, config, parts, tokens, at_once, device)
    done = run_batch(folder, spec, place, as_json)
    if as_json:
        print_json({"schema": SCHEMA, **done})
    else:
        click.echo(f"{done['samples']} samples answered, {done['faults']} of them with a fault: {done['output']}")
    if done["faults"]:
        raise click.exceptions.Exit(EXIT_BAD)
