"""`cordee nodes rules`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.core.errors import EXIT_BAD
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import json_option


@click.command("rules")
@click.argument("paths", nargs=-1, metavar="[FILE|DIR]...")
@json_option
def rules_command(paths: tuple[str, ...], as_json: bool) -> None:
    """List the rules in the order in which they are tried: your own in FILE first, each put on trial, then ours.

    \b
    Example:
      cordee nodes rules
      cordee nodes rules site-rules.yaml
    """
    from cordee.systems.vetting.fleet.catalogue import examine_rules
    from cordee.systems.vetting.rules import load_rules

    given = [Path(path) for path in paths]
    rules, findings = load_rules(given), examine_rules(given)
    if as_json:
        print_json(
            {"schema": "cordee.rules/1", "rules": rules, "findings": [finding.document() for finding in findings]}
        )
    else:
        width = max(len(rule["id"]) for rule in rules)
        for rule in rules:
            click.echo(f"{rule['id']:{width}}  {rule['kind']:4}  {rule['scope']:5}  {rule['action']:9}  {rule['text']}")
        print_findings(findings)
    if findings:
        raise click.exceptions.Exit(EXIT_BAD)
