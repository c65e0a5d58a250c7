"""`cordee score validate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option

_RESULTS = "results.json"


@click.command()
@click.option(
    "--minutes", type=click.FloatRange(0, min_open=True), default=8.0, show_default=True, help="Time for all."
)
@click.option("-o", "folder", metavar="DIR", default="validation", show_default=True, help="Where recordings go.")
@click.option("--only", default="", metavar="NAMES", help="Only these workloads, with commas between.")
@click.option("--device", type=click.Choice(["gpu", "cpu"]), default="gpu", show_default=True, help="What to load.")
@click.option("--interval", default="0.5s", show_default=True, metavar="TIME", help="Time between samples.")
@click.option(
    "--python", default=sys.executable, metavar="PATH", help="The workloads' Python, with torch (default: this)."
)
@click.option("--list", "as_list", is_flag=True, help="Show workloads, halves, classes and bands; run nothing.")
@click.option("--from", "recorded", metavar="DIR", help="Judge the recordings of an earlier validation; run nothing.")
@json_option
def command(
    minutes: float,
    folder: str,
    only: str,
    device: str,
    interval: str,
    python: str,
    as_list: bool,
    recorded: str | None,
    as_json: bool,
) -> None:
    """Run labelled workloads on a real GPU and compare what the score says of them with what it must say.

    Results so far are in DIR/results.json, also when it is interrupted. Exit code 1: a band or a class was missed; 2: there is no
    GPU, or its counters are closed.

    \b
    Example:
      cordee score validate --list
      cordee score validate -o validation
      cordee score validate --device cpu --only core-idle --minutes 1
    """
    from cordee.runs.folder import write_atomically
    from cordee.systems.score.validation import conduct, table
    from cordee.systems.score.validation.truths import truths
    from cordee.telemetry.node.record.options import parse_interval

    wanted = [] if recorded else truths(device, only)
    if as_list:
        _list(wanted, as_json)
        return
    if recorded is not None:
        found, place = _judged_again(Path(recorded), only), {}
    else:
        seen = conduct.find_gpu(python) if device == "gpu" else {}
        place = {**conduct.this_place(), **seen}
        seconds = conduct.steady_seconds(minutes, len(wanted), device)
        how = conduct.Conduct(Path(folder), seconds, parse_interval(interval), python, place, conduct.one_gpu(seen))
        if device == "gpu":
            how.probe_counters()
        click.echo(f"{len(wanted)} workloads, about {seconds:.0f} s each after starting", err=True)
        click.echo(table.header_line(), err=as_json)
        found = []

        def keep(one: Any) -> None:
            _say(table.judgement_lines(one), as_json)
            found.append(one)
            text = json.dumps(table.document(found, place, folder), indent=1, allow_nan=False, default=str)
            write_atomically(Path(folder) / _RESULTS, text.encode() + b"\n")

        conduct.validate(how, wanted, minutes, keep)
    if as_json:
        print_json(table.document(found, place, recorded or folder))
    else:
        for line in table.end_lines(found):
            click.echo(line)
    raise click.exceptions.Exit(EXIT_DONE if table.verdict(found) == "pass" else EXIT_BAD)


def _list(wanted: list[Any], as_json: bool) -> None:
    from dataclasses import asdict

    from cordee.systems.score.validation.table import list_lines

    if as_json:
        print_json({"schema": "cordee.validation-list/1", "workloads": [asdict(truth) for truth in wanted]})
    else:
        _say(list_lines(wanted), to_errors=False)


def _judged_again(folder: Path, only: str) -> list[Any]:
    from cordee.systems.score.validation.conduct import judge_recordings
    from cordee.systems.score.validation.table import header_line, judgement_lines

    found = judge_recordings(folder, only)
    _say([header_line()], to_errors=True)
    for one in found:
        _say(judgement_lines(one), to_errors=True)
    return found


def _say(lines: list[str], to_errors: bool) -> None:
    for line in lines:
        click.echo(line, err=to_errors)
