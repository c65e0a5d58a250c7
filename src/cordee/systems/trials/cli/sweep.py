"""`cordee sweep`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from cordee.core.documents.files import write_new
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import flags, json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.systems.trials.cli.farm import conclude
from cordee.systems.trials.farm_life import add_trials, begin_again

_MOST_SHOWN = 20


@click.group()
def command() -> None:
    """Show the trials of a sweep, add some, take the best. `cordee run` runs a job that has [sweep].

    \b
    Example:
      cordee sweep show last
      cordee sweep add last --trials 16
      cordee sweep best last -o best.toml
    """


@command.command("show")
@run_argument
@runs_option
@json_option
def show(run: str, runs: str | None, as_json: bool) -> None:
    """Show the trials of RUN (default: the last one), the best first, and which parameter mattered.

    \b
    Example:
      cordee sweep show last --json
    """
    from cordee.systems.trials.sweeps import Sweep, trial_words

    folder = found(run, runs)
    sweep = Sweep(folder)
    document = {**sweep.document(), "state": state_of(folder).state}
    if as_json:
        print_json(document)
        return
    counts = Counter(trial["state"] for trial in sweep.trials)
    states = [state for state in ("done", "halved", "failed", "running", "waiting") if counts[state]]
    told = ", ".join(f"{counts[state]} {state}" for state in states)
    click.echo(f"{len(sweep.trials)} trials: {told}; goal: {document['goal']}")
    for name, share in sorted((document["importance"] or {}).items(), key=lambda item: -item[1]):
        click.echo(f"  {name:<16} explains {share:5.0%} of the differences  {'#' * round(24 * share)}")
    if document["front"]:
        numbers = ", ".join(map(str, document["front"]))
        click.echo(f"no other trial beats {len(document['front'])} of them in all goals: {numbers}")
    order = sweep.in_order()
    for trial in order[:_MOST_SHOWN]:
        click.echo(trial_words(trial))
    if len(order) > _MOST_SHOWN:
        click.echo(f"... and {len(order) - _MOST_SHOWN} more; --json lists all")


@command.command("best")
@run_argument
@click.option(
    "-o",
    "output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the document there, not on standard output.",
)
@click.option("--trial", type=click.IntRange(0), metavar="N", help="Take this trial, not the best.")
@runs_option
@json_option
def best(run: str, output: Path | None, trial: int | None, runs: str | None, as_json: bool) -> None:
    """Print the job document of RUN with the values of its best trial in place of the sweep.

    \b
    Example:
      cordee sweep best last -o best.toml
    """
    from cordee.systems.trials.sweeps import Sweep

    sweep = Sweep(found(run, runs))
    text = sweep.best_document(trial)
    if output is not None:
        write_new(output, text)
    if as_json:
        print_json({"schema": "cordee.best/1", "run": sweep.folder.id, "best": sweep.best, "document": text})
    elif output is None:
        click.echo(text, nl=False)


@command.command("add")
@run_argument
@click.option("--trials", type=click.IntRange(1), metavar="N", help="How many more.")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=RANGE", help="Another range of a parameter, as in [sweep]."
)
@click.option("--detach", is_flag=True, help="Return at once.")
@runs_option
@json_option
def add(run: str, trials: int | None, settings: tuple[str, ...], detach: bool, runs: str | None, as_json: bool) -> None:
    """Add trials to RUN (default: the last one), which may have ended: its sampler goes on where it stopped.

    \b
    Example:
      cordee sweep add last --trials 16
      cordee sweep add last --trials 16 --set lr="log 1e-4..1e-2"
    """
    from cordee.systems.trials.sweeps import Sweep

    folder = found(run, runs)
    add_trials(folder, Sweep(folder), trials, flags(None, settings))
    begin_again(folder)
    conclude(folder, detach=detach, as_json=as_json)
