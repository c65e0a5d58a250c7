"""`cordee run`."""

from __future__ import annotations

import click

from cordee.cli.follow import Follower
from cordee.cli.options import cluster_name, flags, json_option, runs_folder, runs_option, spec_arguments
from cordee.cli.output import print_findings, print_json
from cordee.errors import EXIT_ABORT, EXIT_BAD, EXIT_DONE, EXIT_INTERNAL
from cordee.insight.data_account import account_of
from cordee.report.run_document import run_document
from cordee.runs.folder import RunFolder
from cordee.runs.state import RunState

_INTERNAL = ("no_agents", "supervisor", "no_port", "internal")


@click.command()
@spec_arguments
@click.option("--detach", is_flag=True, help="Return at once; the run goes on by itself.")
@runs_option
@json_option
def command(
    spec: str,
    cluster: str | None,
    nodes: int | None,
    settings: tuple[str, ...],
    detach: bool,
    runs: str | None,
    as_json: bool,
) -> None:
    """Run the job in SPEC: a cordee.toml or the folder that holds one (default: here).

    Waits and shows the ranks' output unless --detach is given. Exit code 0 when all ranks ended well, 1 when the run
    failed or was cancelled, 4 when vetting left too few nodes.

    \b
    Example:
      cordee run examples/char-gpt
      cordee run --nodes 4 --set restart.retries=5 --detach
    """
    from cordee.submit.prepare import create_run, prepare

    prepared = prepare(spec, cluster_name(cluster), flags(nodes, settings), runs_folder(runs))
    if not as_json:
        print_findings([finding for finding in prepared.findings if finding.severity == "warn"])
    prepared.require_valid()
    folder = create_run(prepared)
    submit(folder)
    if not as_json:
        click.echo(f"cordee: run {folder.id}", err=True)
    conclude(Follower(folder, quiet=as_json), detach=detach, as_json=as_json)


def submit(folder: RunFolder) -> None:
    """Hand a run's frozen plan to its back end."""
    from cordee.submit import plan_of, submitter_of

    submitter_of(folder).submit(folder, plan_of(folder))


def conclude(follower: Follower, *, detach: bool, as_json: bool) -> None:
    """Follow a submitted run to its end, or leave it; prints the outcome and exits with its code."""
    folder = follower.folder
    state = follower.state() if detach else follower.follow()
    if state.ended and not (folder.report / "index.html").is_file():
        from cordee.report import render

        render(folder.root)
    if as_json:
        print_json(run_document(folder, state))
    elif state.ended:
        _tell(folder, state)
    elif detach:
        click.echo(f"cordee: it goes on by itself; `cordee watch {folder.id}` shows it", err=True)
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
            f"cordee: newest checkpoint {state.checkpoint}; `cordee resume {folder.id}` goes on from it", err=True
        )
    if state.state == "failed":
        click.echo(f"cordee: `cordee advise {folder.id}` says why, and what to change", err=True)
    for account in account_of(state):
        click.echo(f"cordee: data {account.name}: {account.text()}", err=True)
    report = folder.report / "index.html"
    if report.is_file():
        click.echo(f"cordee: report {report}", err=True)
