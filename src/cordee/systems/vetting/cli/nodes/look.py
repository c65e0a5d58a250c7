"""`cordee nodes history` and `cordee nodes offenders`."""

from __future__ import annotations

import time
from typing import Any

import click

from cordee.core.draw.clean import clean, one_line
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option
from cordee.systems.vetting.cli.nodes.options import epoch_since, history_options, open_history, since_option

_MOST = 6


@click.command("history")
@click.argument("node", required=False)
@since_option("7d")
@click.option("--check", "checks", multiple=True, metavar="CHECK", help="With NODE: this check's values over time.")
@history_options
@json_option
def history_command(node: str | None, since: str, checks: tuple[str, ...], as_json: bool, **where: str | None) -> None:
    """List vettings, or those of one NODE with what was not well.

    \b
    Example:
      cordee nodes history --since 7d
      cordee nodes history nid001 --check gpu.gemm
    """
    from cordee.systems.vetting.fleet.views import list_vettings, node_history

    index, _, _ = open_history(**where)
    begin = epoch_since(since)
    rows = node_history(index, node, begin, checks) if node else list_vettings(index, begin)
    if as_json:
        print_json({"schema": "cordee.nodes-history/1", "node": node, "vettings": rows})
        return
    if not rows:
        click.echo(f"no vettings{' of ' + node if node else ''} in the last {since}", err=True)
        return
    for row in rows:
        click.echo(clean(_node_line(row) if node else _vetting_line(row)))


def _vetting_line(row: dict[str, Any]) -> str:
    wanting = row["wanting"]
    names = ", ".join(wanting[:_MOST]) + (f" and {len(wanting) - _MOST} more" if len(wanting) > _MOST else "")
    said = f"  not well: {names}" if wanting else ""
    head = f"{_time(row['at'])}  job {row['job'] or '-':10}  {row['verdict']:8}  {row['nodes']:5} nodes"
    return f"{head}  {row['protocol'] or '-'}{said}"


def _node_line(row: dict[str, Any]) -> str:
    lines = [f"{_time(row['at'])}  job {row['job'] or '-':10}  {row['verdict']:8}  {row['protocol'] or '-'}"]
    for result in row["results"]:
        value = f" {result['value']:g} {result['unit'] or ''}".rstrip() if result["value"] is not None else ""
        rule = f" [{result['rule']}]" if result["rule"] else ""
        evidence = f": {one_line(result['evidence'])}" if result["evidence"] else ""
        lines.append(f"    {result['check']}{value} {result['status']}{rule}{evidence}")
    return "\n".join(lines)


def _time(at: str) -> str:
    return at[:19].replace("T", " ")


@click.command("offenders")
@click.option("--days", type=click.FloatRange(1, 365), help="How far back (default: the site's policy, 28).")
@history_options
@json_option
def offenders_command(days: float | None, as_json: bool, **where: str | None) -> None:
    """Rank the nodes with faults: the evidence, which jobs and partners confirm it, which rule.

    \b
    Example:
      cordee nodes offenders --days 28
    """
    from cordee.systems.vetting.fleet.audit import Audit
    from cordee.systems.vetting.fleet.observations import read_records
    from cordee.systems.vetting.fleet.situation import DAY_S
    from cordee.systems.vetting.fleet.views import rank_offenders

    index, place, profile = open_history(**where)
    policy = profile.vetting.offenders
    begin = time.time() - (days or policy.days) * DAY_S
    deeds = [deed for deed in Audit(place.audit).deeds() if deed.at >= begin]
    offenders = rank_offenders(read_records(index, begin, policy.protocols), policy, deeds)
    if as_json:
        print_json({"schema": "cordee.offenders/1", "days": days or policy.days, "offenders": offenders})
        return
    if not offenders:
        click.echo("no node has faults", err=True)
        return
    width = max(len(offender["node"]) for offender in offenders)
    click.echo(f"{'node':{width}}  fault  confirmed  jobs  vettings  drains  last")
    for offender in offenders:
        confirmed = "yes" if offender["confirmed"] else "no"
        click.echo(
            f"{offender['node']:{width}}  {offender['kind']:5}  {confirmed:9}  {offender['jobs']:4}"
            f"  {offender['vettings']:8}  {offender['drains']:6}  {_time(offender['last'])}"
        )
        for rule in offender["rules"]:
            missing = f" ({rule['missing']})" if rule["missing"] else ""
            click.echo(f"    {rule['rule']}{missing}")
            for evidence in rule["evidence"][-3:]:
                click.echo(f"      {_time(evidence['at'])}  job {evidence['job'] or '-'}  {one_line(evidence['text'])}")
