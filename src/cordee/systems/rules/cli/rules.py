"""`cordee rules`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cordee.core.draw.clean import clean, one_line
from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import json_option, runs_folders, runs_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cordee.runs.folder import RunFolder

_SUFFIXES = (".yaml", ".yml")


@click.group()
def command() -> None:
    """Rules about runs, written by operators: put on trial, judged on old runs. Those of the site's profile are judged in every run.

    \b
    Example:
      cordee rules check site-rules.yaml
      cordee rules run site-rules.yaml --all
    """


@command.command("check")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...")
@json_option
def check_command(paths: tuple[str, ...], as_json: bool) -> None:
    """Read rules and put each on trial with its example and its counterexample. Exit code 1: one fails, 2: a file is wrong.

    \b
    Example:
      cordee rules check site-rules.yaml
    """
    from cordee.systems.rules.catalogue import resolved_rules, rule_paths, tried_rules

    files = rule_paths(paths)
    rules, findings = resolved_rules(files, built_in=False), tried_rules(files)
    if as_json:
        documents = [finding.document() for finding in findings]
        print_json({"schema": "cordee.rules-check/1", "rules": rules, "findings": documents})
    else:
        width = max((len(rule["id"]) for rule in rules), default=0)
        for rule in rules:
            click.echo(f"{rule['id']:{width}}  {rule['scope']:5}  {rule['action']:9}  {one_line(rule['text'])}")
        click.echo(f"{len(rules)} rules, {len(findings)} faults")
        print_findings(findings)
    if findings:
        raise click.exceptions.Exit(EXIT_BAD)


@command.command("run")
@click.argument("names", nargs=-1, metavar="[FILE.yaml]... [RUN]...")
@click.option("--all", "every", is_flag=True, help="All runs that `cordee runs` lists.")
@click.option(
    "--on",
    "cluster",
    metavar="CLUSTER",
    help="Whose rules, without FILE (default: CORDEE_ON, else the one of this Slurm, else local).",
)
@runs_option
@json_option
def run_command(names: tuple[str, ...], every: bool, cluster: str | None, runs: str | None, as_json: bool) -> None:
    """Judge rules on runs (default: the last one): which holds where, and when. Changes nothing.

    The rules are those of FILE, else of the cluster's profile; behind them those of Cordée that count over runs. Exit code 1:
    a rule whose action is `drain` holds.

    \b
    Example:
      cordee rules run site-rules.yaml --all
    """
    from cordee.systems.rules.catalogue import resolved_rules, rule_paths
    from cordee.systems.rules.counted import counter_of
    from cordee.systems.rules.replay import replay_rules
    from cordee.systems.rules.run_findings import counted_run
    from cordee.systems.rules.views import place_document, site_rules

    files = [
        name for name in names if name.endswith(_SUFFIXES) or (Path(name).is_dir() and any(Path(name).glob("*.yaml")))
    ]
    rules = resolved_rules(rule_paths(files)) if files else site_rules(cluster)
    counter, actions, told, judged, held = counter_of(rules), set(), [], 0, 0
    for folder in _folders([name for name in names if name not in files], every, runs):
        replayed = replay_rules(folder, rules)
        counter.take(counted_run(folder, replayed.findings()))
        judged, held = judged + 1, held + len(replayed.held)
        actions |= {one.rule["action"] for one in replayed.held}
        if replayed.held or replayed.why or replayed.dropped:
            if as_json:
                told.append(replayed.document())
            else:
                _print(replayed.document())
    places = [place_document(place) for place in counter.found()]
    if as_json:
        print_json({"schema": "cordee.rules-run/1", "rules": rules, "judged": judged, "runs": told, "places": places})
    else:
        for place in places:
            click.echo("\n".join(_place_lines(place)))
        click.echo(f"{len(rules)} rules on {judged} runs: {held} places in runs, {len(places)} over runs")
    if "drain" in actions | {place["action"] for place in places}:
        raise click.exceptions.Exit(EXIT_BAD)


def _folders(names: list[str], every: bool, runs: str | None) -> Iterator[RunFolder]:
    from cordee.job.terminal.run_args import found
    from cordee.runs.folder import RunFolder
    from cordee.runs.index import list_runs

    if every and names:
        raise UsageError("--all takes no runs", given=" ".join(names), next="name runs, or give --all")
    if every:
        yield from (RunFolder(summary.folder) for summary in list_runs(*runs_folders(runs)))
    else:
        yield from (found(name, runs) for name in names or ["last"])


def _print(run: dict[str, Any]) -> None:
    click.echo(run["run"])
    for one in run["held"]:
        ranks = f"rank {','.join(map(str, one['ranks'][:8]))}" if one["ranks"] else ""
        where = " ".join(filter(None, (", ".join(one["nodes"][:4]), ranks, one["device"]))) or "-"
        times = f" (x{one['times']})" if one["times"] > 1 else ""
        click.echo(f"  {one['first'][:19]}  {one['rule']}  {where}{times}  {one_line(one['what'], 160)}")
    for why in run["not_judged"]:
        click.echo(f"  not judged: {one_line(why)}")
    if run["dropped"]:
        click.echo(f"  and more places, {run['dropped']} times")


def _place_lines(place: dict[str, Any]) -> list[str]:
    """Return a place for people: what it is, the newest runs that name it, what to do."""
    below = f" ({', '.join(place['nodes'][:8])})" if place["kind"] == "switch" else ""
    lines = [f"{place['kind']} {place['name']}{below}: {len(place['runs'])} runs  [{place['rule']}: {place['action']}]"]
    for run in place["runs"][-5:]:
        lines.append(f"  {run['at'][:19]}  {run['run']}  {run['finding']}: {one_line(run['text'], 100)}")
    return [clean(line) for line in lines] + [f"  next: {place['next']}"]
