"""`cordee show`."""

from __future__ import annotations

import click

from cordee.backends.reconcile import known_until
from cordee.core.terminal.output import print_json
from cordee.core.units import format_duration, utc_text
from cordee.faces.cli.scheduler_state import hold_words, last_word, stand, state_word, words
from cordee.faces.report.completion import completed
from cordee.faces.report.container import container_words
from cordee.faces.report.run_document import family, run_document
from cordee.faces.report.segments import began_words, segment_words, worth_showing
from cordee.job.submit import step_of
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.runs.folder import RunFolder
from cordee.runs.state import RunState, called
from cordee.telemetry.node.recording import is_recorded
from cordee.telemetry.shown.view import views_of
from cordee.telemetry.store.phases import segment_times


@click.command()
@run_argument
@runs_option
@json_option
def command(run: str, runs: str | None, as_json: bool) -> None:
    """Show RUN (default: the last one), or a recording: its state, nodes, ranks, restarts and failures.

    \b
    Example:
      cordee show last --json
    """
    folder = found(run, runs, recordings=True)
    state, standing = stand(folder, state_of(folder))
    not_home = state.ended and standing is not None and standing.queued  # it has ended, and what it made is not here
    word = state_word("queued" if not_home else state.state, standing)
    report = None if is_recorded(folder) else completed(folder, state)
    if as_json:
        print_json({**run_document(folder, state), "standing": vars(standing) if standing else None})
        return
    for line in describe(folder, state, word):
        click.echo(line)
    if report is not None:
        click.echo(f"report      {report}")
    if standing is not None and (not_home or not state.ended):
        click.echo(f"scheduler   {words(standing)}")
    if state.state == "running" and last_word(folder):
        click.echo(f"last word   {last_word(folder)}")
    if is_recorded(folder):
        click.echo(f"score       `cordee score {folder.root}` says how well the hardware was used")
    elif word in ("failed", "held") or (standing is not None and state.state == "queued"):
        click.echo(f"advice      `cordee advise {folder.id}` says why, and what to change")


def describe(folder: RunFolder, state: RunState, word: str = "") -> list[str]:
    """Return the lines that `cordee show` prints; `word` is its state where the journal's is not the last word."""
    recorded = is_recorded(folder)
    family_of = family(folder, state)
    word, text = family_of.get("state") or word or state.state, family_of.get("text", state.text)
    said = f": {text}" if text else ""
    lines = [f"{'recording' if recorded else 'run':<11} {folder.id}", f"state       {word}{said}"]
    if state.submitted_at is not None:
        lines.append(f"submitted   {utc_text(state.submitted_at)}")
    if state.started_at is not None and state.ended_at is not None:
        lines.append(f"took        {format_duration(state.ended_at - state.started_at)}")
    if state.job:
        lines.append(f"job         {state.job}")
    if container_words(step_of(folder)):
        lines.append(f"environment {container_words(step_of(folder))}")
    for one in step_of(folder).get("data", []):
        licence = f" (licence: {one['licence']})" if one.get("licence") else ""
        lines.append(f"data        {one['name']}: {one['place']}{licence}")
    if not recorded and (state.segments or "children" not in family_of):
        lines.append(f"segments    {state.segments}, restarts {state.restarts}, attempt {state.attempt}")
    for segment in map(segment_words, segment_times(state, known_until(folder, state)) if worth_showing(state) else []):
        lines += [f"  {segment.number:<2} {segment.course}", f"     {segment.ended}"]
    lines += [f"hold        {text}" for text in hold_words(state)]
    if "parent" in family_of:
        lines.append(f"part of     {family_of['parent']}")
    for child in family_of.get("children", []):
        text = f": {child['text']}" if child["text"] and child["state"] != "finished" else ""
        run = "" if child["state"] == "not started" else f" {child['run']}"
        lines += [f"  {child['name']:16} {child['state']:9}{run}{text}"]
    if state.step is not None:
        lines.append(f"step        {state.step}" + (f" of {state.total}" if state.total else ""))
    if began_words(state):
        lines.append(f"began from  {began_words(state)}")
    if state.checkpoint:
        lines.append(f"checkpoint  {state.checkpoint}")
    views = views_of(state, step_of(folder))
    lines += [f"{name:<11} {text}" for view in views for name, text in view.facts()]
    lines += [line for view in views for line in view.lines(folder)]
    if state.nodes:
        lines.append(f"nodes of segment {state.segments}" if state.state == "queued" else "nodes")
    for node in state.nodes:
        ranks = f"ranks {', '.join(map(str, node.ranks))}" if node.ranks else ""
        lines.append(f"  {node.node:16} {node.verdict:8} {node.role:9} {ranks}".rstrip())
        for result in node.results:
            if result["status"] != "pass":
                lines.append(f"    {called(result)} {result['status']}: {result['evidence']}")
    for entry in state.attempts:
        if entry.get("outcome") not in (None, "finished", "segment"):
            lines.append(f"attempt {entry['attempt']:<3} {entry['outcome']}: {entry.get('reason')}")
    findings = [*state.findings, *(finding for view in views for finding in view.findings())]
    lines += [f"finding     {finding}" for finding in findings]
    lines.append(f"folder      {folder.root}")
    return lines
