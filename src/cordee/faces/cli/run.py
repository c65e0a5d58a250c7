"""`cordee run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cordee.core.errors import EXIT_ABORT, EXIT_BAD, EXIT_DONE, EXIT_INTERNAL, UsageError
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import (
    JobCommand,
    cluster_name,
    flags,
    json_option,
    runs_folder,
    runs_option,
    spec_arguments,
)
from cordee.runs.folder import RunFolder

if TYPE_CHECKING:
    from cordee.faces.cli.follow import RunFollower
    from cordee.runs.state import RunState

_INTERNAL = ("no_agents", "supervisor", "no_port", "internal")


@click.command(cls=JobCommand)
@spec_arguments
@click.option("--save", is_flag=True, help="Keep the document that is made for SCRIPT or COMMAND as cordee.toml.")
@click.option("--detach", is_flag=True, help="Return at once; the run continues in the background.")
@runs_option
@json_option
def command(
    spec: str,
    cluster: str | None,
    nodes: int | None,
    begin: str | None,
    settings: tuple[str, ...],
    save: bool,
    detach: bool,
    runs: str | None,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Run the job in SPEC: a cordee.toml or the folder that holds one (default: here).

    A script, or a command behind `--`, needs no document: one is made for it. Options of Cordée stand before it, what
    stands behind it is its own.

    Waits and shows the ranks' output unless --detach is given. Exit code 0 when all ranks ended well, 1 when the run
    failed or was cancelled, 4 when vetting left too few nodes.

    \b
    Example:
      cordee run examples/char-gpt
      cordee run --nodes 4 --set restart.retries=5 --detach
      cordee run train.py --lr 1e-3
      cordee run -- torchrun --nproc-per-node 2 train.py
      cordee run --begin runs/base-20261122T120000Z-abcd/checkpoints
    """
    from cordee.job.submit.prepare import create_run, prepare, save_document

    given = flags(nodes, settings, begin)
    if save and not program:
        raise UsageError(
            "--save has nothing to keep: no script was given",
            given="--save",
            next="`cordee run --save train.py` keeps one",
        )
    prepared = prepare(spec, cluster_name(cluster), given, runs_folder(runs), program)
    if not as_json:
        print_findings([finding for finding in prepared.findings if finding.severity == "warn"])
    prepared.require_valid()
    if save:
        save_document(prepared, flags(nodes, settings))
        click.echo(f"cordee: wrote {prepared.loaded.path}", err=True)
    folder = create_run(prepared)
    submit(folder)
    if not as_json:
        click.echo(f"cordee: run {folder.id}", err=True)
        for finding in prepared.findings:
            if finding.rule == "begins-from":
                click.echo(f"cordee: {finding.text}", err=True)
    from cordee.faces.cli.follow import RunFollower  # deferred: it is imported while the run starts

    conclude(RunFollower(folder, quiet=as_json), detach=detach, as_json=as_json)


def submit(folder: RunFolder) -> str:
    """Hand a run's frozen plan to its back end, and return the place's name of it."""
    from cordee.job.submit import plan_of, submitter_of

    return submitter_of(folder).submit(folder, plan_of(folder))


def conclude(follower: RunFollower, *, detach: bool, as_json: bool) -> None:
    """Follow a submitted run to its end, or leave it; prints the outcome and exits with its code."""
    from cordee.faces.report.completion import complete
    from cordee.faces.report.run_document import run_document

    folder = follower.folder
    state = follower.state() if detach else follower.follow()
    complete(folder, state, owner_is_gone=True)
    if as_json:
        print_json(run_document(folder, state))
    elif state.ended:
        _tell(folder, state)
    elif detach:
        click.echo(f"cordee: the run continues in the background; follow it with `cordee watch {folder.id}`", err=True)
    raise click.exceptions.Exit(exit_code(state))


def exit_code(state: RunState) -> int:
    """Return the exit code of `cordee run` for a state."""
    if state.reason == "vetting":
        return EXIT_ABORT
    if state.reason in _INTERNAL:
        return EXIT_INTERNAL
    return EXIT_BAD if state.state in ("failed", "cancelled") else EXIT_DONE


def _tell(folder: RunFolder, state: RunState) -> None:
    click.echo(f"cordee: {state.state}: {state.text}", err=True)
    if state.state != "finished" and state.checkpoint:
        click.echo(
            f"cordee: newest checkpoint {state.checkpoint}; `cordee resume {folder.id}` continues from it", err=True
        )
    if state.state == "failed":
        click.echo(f"cordee: `cordee advise {folder.id}` says why, and what to change", err=True)
    from cordee.job.submit import step_of
    from cordee.telemetry.shown.view import views_of

    for view in views_of(state, step_of(folder)):
        for name, text in view.facts():
            click.echo(f"cordee: {name} {text}", err=True)
    report = folder.report / "index.html"
    if report.is_file():
        click.echo(f"cordee: report {report}", err=True)
