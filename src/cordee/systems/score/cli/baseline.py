"""`cordee score baseline`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option


@click.command("baseline")
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The new file.")
@click.option("--workload", required=True, metavar="NAME", help="What was run, as llama-8b-pretrain.")
@click.option("--note", default="", metavar="TEXT", help="A sentence for those who will use it.")
@click.option("--keep-command", is_flag=True, help="Keep the command line too (it may name paths and people).")
@json_option
def command(
    folders: tuple[str, ...], output: Path, workload: str, note: str, keep_command: bool, as_json: bool
) -> None:
    """Keep what a workload reached, from one or several runs, so that later runs can be judged against it.

    A verdict needs five runs or more: their spread shows how far runs of one job differ.
    The file holds numbers and hardware: no samples, paths, hosts or users.

    \b
    Example:
      cordee score baseline run-1 run-2 run-3 run-4 run-5 -o llama.json --workload llama-8b-pretrain
      cordee score run-6 --against llama.json
    """
    from cordee.core.words import counted
    from cordee.systems.score.baselines.baseline import FEWEST_RUNS, write_baseline
    from cordee.systems.score.baselines.comparison import make_baseline

    made = make_baseline(folders, workload, note, keep_command=keep_command)
    write_baseline(output, made)
    if as_json:
        print_json({**made.document(), "file": str(output)})
        return
    score = made.document()["quantities"]["score"]
    click.echo(
        f"{output}: {workload}, {counted(len(made.runs), 'run')}, score {score['median']:.1f} "
        f"(from {score['low']:.1f} to {score['high']:.1f})"
    )
    if len(made.runs) < FEWEST_RUNS:
        click.echo(f"note: a verdict against a baseline needs {FEWEST_RUNS} runs or more", err=True)
