"""`cordee farm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE, UsageError
from cordee.core.terminal.group import DefaultGroup
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import cluster_name, duration, flags, json_option, runs_folder, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.runs.folder import RunFolder
from cordee.systems.trials.farm_life import TASKS, begin_again, follow, name_of, retry_tasks, submit_run

_MOST_SHOWN = 50


@click.group(cls=DefaultGroup, invoke_without_command=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--on", "cluster", metavar="CLUSTER", help="Where to run (default: CORDEE_ON, else local).")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Number of nodes.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Deal the tasks out over so many jobs.")
@click.option("--cores", type=click.IntRange(1), metavar="N", help="Whole cores of each task (default: 1).")
@click.option("--gpus", type=click.FloatRange(0), metavar="N", help="GPUs of each task; below 1: a share of one.")
@click.option("--memory", metavar="SIZE", help="Memory of each task, such as 4GB.")
@click.option("--time", "time", metavar="TIME", help="How long each task may take, such as 10min.")
@click.option("--retries", type=click.IntRange(0), metavar="N", help="How often a failed task is run again.")
@click.option("--format", metavar="KIND", help="What FILE is: auto, lines, meta, glost, disbatch, parallel, array.")
@click.option(
    "--job", metavar="SPEC", help="A cordee.toml with what the tasks need; its `run` has {line} where the line belongs."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set any key, as need.time=2h.")
@click.option("--detach", is_flag=True, help="Return at once; the farm continues in the background.")
@runs_option
@json_option
def command(
    file: Path,
    cluster: str | None,
    nodes: int | None,
    time: str | None,
    job: str | None,
    settings: tuple[str, ...],
    detach: bool,
    runs: str | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Run each line of FILE as a task, as many at a time as there are slots, in one allocation.

    A line is a command for `sh`. Lines that begin with `#cordee` say what those behind them ask for: `#cordee cores=2 gpus=0.5
    memory=4GB time=10min`. What a task prints is in the run's logs under its number, from 0. Exit code 0 when all are done, 1 when one
    failed.

    \b
    Example:
      cordee farm tasks.txt
      cordee farm tasks.txt --on mycluster --nodes 4 --gpus 1 --time 30min
      cordee farm show last --failed
      cordee farm retry last
      cordee farm add last more.txt
    """
    from cordee.job.command_line import job_name
    from cordee.job.submit.prepare import create_run, prepare

    given = flags(nodes, settings)
    asked = {"file": str(file.absolute()), **more, "time": None if time is None else duration(time, "--time")}
    given.update({f"farm.{key}": value for key, value in asked.items() if value is not None})
    if job is None:
        given.setdefault("name", job_name(file.stem))
        prepared = prepare(".", cluster_name(cluster), given, runs_folder(runs), ("sh", "-c", "{line}"))
    else:
        prepared = prepare(job, cluster_name(cluster), given, runs_folder(runs))
    if not as_json:
        print_findings([finding for finding in prepared.findings if finding.severity == "warn"])
    prepared.require_valid()
    folder = create_run(prepared)
    submit_run(folder)
    click.echo(f"cordee: run {folder.id}", err=True)
    conclude(folder, detach=detach, as_json=as_json)


def conclude(folder: RunFolder, *, detach: bool, as_json: bool) -> None:
    """Wait for the end of a farm or sweep, or leave it; prints what became of it and exits with its code."""
    from cordee.systems.trials.shown import Farm

    what = name_of(folder)
    state = state_of(folder) if detach else follow(folder, quiet=as_json)
    document = {**Farm(folder.root).document(folder.id), "state": state.state}
    if as_json:
        print_json(document)
    elif detach:
        told = f"`cordee {what} show {folder.id}` says how far it is"
        click.echo(f"cordee: the {what} continues in the background; {told}", err=True)
    else:
        why = f"; {state.text}" if state.state in ("failed", "cancelled") and not document["failed"] else ""
        click.echo(f"cordee: {state.state}: {summary(document, TASKS[what])}{why}", err=True)
        if document["failed"]:
            listed = f"`cordee {what} show {folder.id}{' --failed' if what == 'farm' else ''}` lists them"
            click.echo(f"cordee: {listed}", err=True)
    bad = state.state in ("failed", "cancelled") or (state.ended and document["failed"])
    raise click.exceptions.Exit(EXIT_BAD if bad else EXIT_DONE)


def summary(document: dict[str, Any], tasks: str = "tasks") -> str:
    """Return what became of a farm's tasks, in a line."""
    text = f"{document['done']} of {document['tasks']} {tasks} done, {document['failed']} failed"
    if document["running"]:
        text += f", {document['running']} with nodes"
    return text if document["seconds"] is None else f"{text}, in {document['seconds']:.1f} s"


@command.command("show")
@run_argument
@click.option("--failed", is_flag=True, help="Only tasks that failed for good.")
@runs_option
@json_option
def show(run: str, failed: bool, runs: str | None, as_json: bool) -> None:
    """Show the tasks of RUN (default: the last one) and what became of them.

    \b
    Example:
      cordee farm show last --failed
    """
    from cordee.systems.trials.shown import Farm

    folder = found(run, runs)
    farm = Farm(folder.root)
    document, rows = farm.document(folder.id), farm.rows("failed" if failed else None)
    if as_json:
        print_json({**document, "state": state_of(folder).state, "list": rows})
        return
    click.echo(summary(document))
    for row in rows[:_MOST_SHOWN]:
        click.echo(_words(row))
    if len(rows) > _MOST_SHOWN:
        click.echo(f"... and {len(rows) - _MOST_SHOWN} more; --json lists all")


def _words(row: dict[str, Any]) -> str:
    late = "its time was over" if row.get("reason") == "deadline" else f"exit code {row.get('code')}"
    how = f" ({row.get('text') or row.get('signal') or late})" if row["state"] == "failed" else ""
    took = f" {row['seconds']:.1f} s" if row.get("seconds") is not None else ""
    tries = f" try {row['tries']}" if row["tries"] > 1 else ""
    return f"{row['id']:>6} {row['state']}{how}{took}{tries}  {row['values'].get('line', '')[:100]}"


@command.command("retry")
@run_argument
@click.option("--detach", is_flag=True, help="Return at once.")
@runs_option
@json_option
def retry(run: str, detach: bool, runs: str | None, as_json: bool) -> None:
    """Run the failed tasks of RUN (default: the last one) again; what is done stays done.

    \b
    Example:
      cordee farm retry last
    """
    from cordee.systems.trials.shown import Farm

    folder = found(run, runs)
    failed = [row["id"] for row in Farm(folder.root).rows("failed")]
    if not failed:
        what = f"`cordee farm show {folder.id}` lists them"
        raise UsageError("no task of this run has failed", given=folder.id, next=what)
    retry_tasks(folder, failed)
    begin_again(folder)
    conclude(folder, detach=detach, as_json=as_json)


@command.command("add")
@click.argument("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--new", "only_new", is_flag=True, help="Only lines that RUN does not have, as of a list that was changed."
)
@click.option("--detach", is_flag=True, help="Return at once.")
@runs_option
@json_option
def add(run: str, file: Path, only_new: bool, detach: bool, runs: str | None, as_json: bool) -> None:
    """Add the tasks of FILE to RUN, which may have ended.

    \b
    Example:
      cordee farm add last more.txt
      cordee farm add last tasks.txt --new
    """
    from cordee.systems.trials.farm_life import add_tasks

    folder = found(run, runs)
    count, there = add_tasks(folder, file, only_new)
    known = f"{there} that the farm had are {'left out' if only_new else 'run again, but for --new'}"
    click.echo(f"cordee: added {count} of its lines{f'; {known}' if there else ''}", err=True)
    begin_again(folder)
    conclude(folder, detach=detach, as_json=as_json)
