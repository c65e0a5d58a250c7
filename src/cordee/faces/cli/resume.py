"""`cordee resume`."""

from __future__ import annotations

import click

from cordee.core.errors import UsageError
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.runs.children import of_a_resume
from cordee.runs.journal import client_journal


@click.command()
@run_argument
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Continue with another number of nodes.")
@click.option(
    "--ranks-per-node", type=click.IntRange(1), metavar="N", help="Continue with another number of ranks on each."
)
@click.option("--detach", is_flag=True, help="Return at once; the run continues in the background.")
@runs_option
@json_option
def command(
    run: str, nodes: int | None, ranks_per_node: int | None, detach: bool, runs: str | None, as_json: bool
) -> None:
    """Continue with RUN (default: the last one) in the same folder, from its newest complete checkpoint.

    With another number of ranks, `cordee.dataset` continues with the very next sample: the global batch stays the same and is
    shared out anew. What the script itself divides by the number of ranks is its own concern.

    \b
    Example:
      cordee resume last
      cordee resume last --nodes 4
    """
    from cordee.backends.resize import resize
    from cordee.faces.cli.follow import RunFollower
    from cordee.faces.cli.run import conclude, submit
    from cordee.job.submit import submitter_of

    folder = found(run, runs)
    state = state_of(folder)
    if state.state == "finished":
        raise UsageError("this run has finished", given=folder.id, next="`cordee run` starts a new one")
    if not state.ended and submitter_of(folder).standing(folder, age_s=0.0).state != "gone":
        raise UsageError("this run has not ended", given=folder.id, next=f"`cordee watch {folder.id}` shows it")
    follower = RunFollower(folder, quiet=as_json, from_now=True)
    changed = resize(folder, nodes, ranks_per_node) if nodes or ranks_per_node else {}
    tell_parent = of_a_resume(folder)
    client_journal(folder.journal).append("resume_requested", **changed)
    tell_parent(submit(folder))
    conclude(follower, detach=detach, as_json=as_json)
