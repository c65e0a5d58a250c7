"""`cordee logs`."""

from __future__ import annotations

import sys
import time

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.faces.cli.follow import LineTail, shown
from cordee.faces.cli.scheduler_state import stand
from cordee.job.submit import plan_of
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.runs.children import child_folder, read_graph
from cordee.runs.folder import RunFolder
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.lookout import Lookout

_STANDING_S, _LIVES_S = 30.0, 1.0
_MOST_NAMED = 5


@click.command()
@run_argument
@click.option("--rank", type=click.IntRange(0), help="Only this rank.")
@click.option("--node", help="Only this node.")
@click.option("-f", "--follow", is_flag=True, help="Show new output until the run has ended.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last N lines of what is there.")
@click.option("--raw", is_flag=True, help="The bytes as they were printed, without ranks in front.")
@runs_option
@json_option
def command(
    run: str,
    rank: int | None,
    node: str | None,
    follow: bool,
    lines: int | None,
    raw: bool,
    runs: str | None,
    as_json: bool,
) -> None:
    """Show what the ranks of RUN (default: the last one) printed.

    \b
    Example:
      cordee logs last --rank 0 -f
    """
    asked = found(run, runs)
    folders = _with_output(asked, rank, follow)
    folder, tails = folders[0], [LineTail(each.logs, rank, node) for each in folders]
    world_size = state_of(folder).world_size
    entries = [line for tail in tails for line in tail.read()]
    if not entries and rank is not None and world_size and rank >= world_size and not _runs_tasks(folder):
        raise UsageError("the run has no such rank", given=f"--rank {rank}", allowed=f"0 to {world_size - 1}")
    if as_json:
        entries = _last(entries + [line for tail in tails for line in tail.rest()], lines)
        names = {0: "stdout", 1: "stderr", 2: "cordee"}
        records = [
            {"rank": of, "stream": names[stream], "line": line.decode(errors="replace")} for of, stream, line in entries
        ]
        print_json({"schema": "cordee.logs/1", "run": asked.id, "lines": records})
        return
    lookout, journal, next_standing = Lookout(folder), JournalFollower(folder), 0.0
    following = follow
    while True:
        if not following:
            entries += [line for tail in tails for line in tail.rest()]
        for of, _, line in _last(entries, lines):
            if raw:
                sys.stdout.buffer.write(line + b"\n")
            else:
                click.echo(shown(of, line, world_size))
        sys.stdout.flush()
        if not following:
            return
        lines = None
        seen = lookout.look()
        state = journal.read() if seen.journal or next_standing == 0.0 else journal.state
        world_size = world_size or state.world_size
        following = not state.ended
        if following and time.monotonic() >= next_standing:
            lives = state.state == "running" and lookout.heard_lately
            next_standing = time.monotonic() + (_LIVES_S if lives else lookout.seldom_s(_STANDING_S))
            if not lives:
                stand(folder, state)  # ends a run in its journal whose job is gone
        if following:
            time.sleep(lookout.pause_s)
        entries = tails[0].read(seen.logs if following else None, everything=not following)


def _with_output(folder: RunFolder, rank: int | None, follow: bool) -> list[RunFolder]:
    """Return the runs that have what a run prints: itself, or those that its tasks were dealt out over.

    Args:
        rank: the task whose output is wanted; None: all of them.
        follow: whether new output is waited for: of one run.

    Raises:
        UsageError: its output is that of several runs, of which one must be named.
        RunFolderError: its graph cannot be read.
    """
    graph = read_graph(folder)
    if graph is None or graph.main or not graph.children:
        return [folder]
    if all(child.about.get("kind") == "part" for child in graph.children):
        if rank is not None:  # they have the tasks by turns
            return [child_folder(folder, graph.children[rank % len(graph.children)])]
        if not follow:
            return [child_folder(folder, child) for child in graph.children]
    names = [f"{folder.id}/{child.name}" for child in graph.children]
    raise UsageError(
        "the runs below this one have its output, each its own",
        given=folder.id,
        allowed=[*names[:_MOST_NAMED], *["..."] * (len(names) > _MOST_NAMED)],
        next=f"`cordee logs {names[0]}{' -f' if follow else ''}` shows one of them",
    )


def _runs_tasks(folder: RunFolder) -> bool:
    """Return whether numbers in a run's output are of tasks, which are no ranks of its world."""
    return bool(plan_of(folder)["steps"][0]["tasks"].get("launch") == "tasks")


def _last(entries: list[tuple[int, int, bytes]], count: int | None) -> list[tuple[int, int, bytes]]:
    return entries if count is None else entries[len(entries) - min(count, len(entries)) :]
