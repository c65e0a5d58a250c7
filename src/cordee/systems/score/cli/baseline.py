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

    With three runs or more the spread between them tells what is noise; with one it is estimated from the run itself.
    The file holds numbers and hardware: no samples, paths, hosts or users.

    \b
    Example:
      cordee score baseline monday tuesday wednesday -o llama.json --workload llama-8b-pretrain
      cordee score thursday --against llama.json
    """
    from cordee.core.words import counted
    from cordee.systems.score.baselines.baseline import write_baseline
    from cordee.systems.score.baselines.comparison import make_baseline

    made = make_baseline(folders, workload, note, keep_command=keep_command)
    write_baseline(output, made)
    if as_json:
        print_json({**made.document(), "file": str(output)})
        return
    score = made.document()["quantities"]["score"]
    spread = "" if score["between"] is None else f", spread between runs {score['between']:.2f}"
    within = "noise within a run not known" if score["within"] is None else f"noise within a run {score['within']:.2f}"
    click.echo(f"{output}: {workload}, {counted(len(made.runs), 'run')}, score {score['mean']:.1f} ({within}{spread})")
    if len(made.runs) < 3:
        click.echo("note: three runs or more make a sharper baseline", err=True)
