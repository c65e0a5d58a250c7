"""`cordee nodes act`."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import click

from cordee.core.draw.clean import clean
from cordee.core.errors import EXIT_BAD, CordeeError, UsageError
from cordee.core.terminal.output import print_json
from cordee.core.units import utc_text
from cordee.job.terminal.options import duration, json_option
from cordee.systems.vetting.cli.nodes.options import history_options

if TYPE_CHECKING:
    from cordee.systems.vetting.fleet.rounds import Acting, Round


@click.command("act")
@click.option("--yes", is_flag=True, help="Do it; without this, only what would be done is shown.")
@click.option("--watch", is_flag=True, help="Keep running, as a service, until SIGTERM.")
@click.option("--interval", default="60s", metavar="TIME", help="With --watch: pause between rounds (default: 60s).")
@click.option("--audit", metavar="FILE", help="The audit trail (default: actions.jsonl in the history).")
@history_options
@json_option
def act_command(
    yes: bool,
    watch: bool,
    interval: str,
    audit: str | None,
    history: str | None,
    token_file: str | None,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Drain, repair and bring back nodes as the site's policy says; a dry run unless told otherwise.

    \b
    Example:
      cordee nodes act
      cordee nodes act --yes
      cordee nodes act --yes --watch --interval 60s
    """
    from cordee.systems.vetting.fleet.history_location import history_place
    from cordee.systems.vetting.fleet.rounds import Acting, cluster_name
    from cordee.systems.vetting.protocol.site import vetting_profile

    pause_s = duration(interval, "--interval")
    if watch and pause_s < 1:
        raise UsageError("--interval is too short", given=interval, allowed="at least 1s")
    profile = vetting_profile(cluster)
    place = history_place(history, profile, token_file, audit)
    # A service may begin before the controller answers, so it asks in every round.
    acting = Acting(place, profile.vetting.offenders, profile.vetting.actions, cluster_name)
    if watch:
        _watch(acting, yes, pause_s, as_json)
        return
    if yes:
        with acting.audit.alone():
            done = acting.act()
    else:
        done = acting.plan()
    _show(done, as_json)
    if any(outcome.phase == "failed" for outcome in done.outcomes):
        raise click.exceptions.Exit(EXIT_BAD)


def _watch(acting: Acting, yes: bool, pause_s: float, as_json: bool) -> None:
    """Act in rounds until SIGTERM or SIGINT; what goes wrong in one round is said, and the next one tries again."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with acting.audit.alone():
        click.echo(f"{utc_text()}  watching, every {pause_s:g} s", err=True)
        last: list[str] = []
        while not stop.is_set():
            try:
                done = acting.act(stop.is_set) if yes else acting.plan()
                if yes or _lines(done, held=False) != last:
                    _tell(done, as_json)
                last = _lines(done, held=False)
            except CordeeError as error:
                click.echo(f"{utc_text()}  {error.text}", err=True)
            stop.wait(pause_s)
    click.echo(f"{utc_text()}  ended", err=True)


def _tell(done: Round, as_json: bool) -> None:
    """Print what a round of a service did: one JSON line, or a line for each action; nothing when it was idle."""
    import json

    busy = [outcome for outcome in done.outcomes if outcome.phase != "held"]
    if as_json and (busy or done.found):
        click.echo(json.dumps({"at": utc_text(), **done.document()}, default=str))
    elif not as_json:
        for line in _lines(done, held=False):
            click.echo(f"{utc_text()}  {line}")


def _show(done: Round, as_json: bool) -> None:
    if as_json:
        print_json(done.document())
        return
    for line in _lines(done, held=True):
        click.echo(line)
    if not done.outcomes:
        click.echo("nothing to do", err=True)
    elif done.dry:
        click.echo("a dry run: nothing was done; --yes does it", err=True)


def _lines(done: Round, held: bool) -> list[str]:
    # Evidence comes from other people's programs.
    return [clean(line) for line in _said(done, held)]


def _said(done: Round, held: bool) -> list[str]:
    lines = [f"earlier: {deed.action} {deed.node}: {deed.said}" for deed in done.found]
    verbs: dict[str, Any] = {"planned": "would", "done": "did", "failed": "FAILED to", "held": "does not"}
    for outcome in done.outcomes:
        if outcome.phase == "held" and not held:
            continue
        proposal = outcome.proposal
        lines.append(f"{verbs[outcome.phase]} {proposal.action} {proposal.node}: {proposal.why}")
        if outcome.how and outcome.phase != "held":
            lines.append(f"    {outcome.how}")
        if outcome.said:
            lines.append(f"    {outcome.said}")
    return lines
