"""`cordee score rules`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cordee.core.errors import EXIT_BAD
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import json_option

if TYPE_CHECKING:
    from cordee.systems.score.diagnosis.rules import ScoreRule


@click.command("rules")
@click.option(
    "--check", "files", multiple=True, metavar="FILE", help="Put the rules of FILE, before all others, on trial."
)
@json_option
def command(files: tuple[str, ...], as_json: bool) -> None:
    """List the rules of diagnosis in the order in which they are tried, each put on trial with its fixtures.

    Exits with 1 when a rule does not give its fixture the class that it should have.

    \b
    Example:
      cordee score rules
      cordee score rules --check site-rules.toml
    """
    from cordee.systems.score.diagnosis.rules import examine_rules, load_rules
    from cordee.systems.score.features import FEATURES

    rules = load_rules(files)
    findings = examine_rules(rules)
    if as_json:
        features = {name: {"unit": unit, "meaning": meaning} for name, (unit, meaning) in FEATURES.items()}
        print_json(
            {
                "schema": "cordee.score-rules/1",
                "rules": [_document(rule) for rule in rules],
                "features": features,
                "findings": [finding.document() for finding in findings],
            }
        )
    else:
        for rule in rules:
            click.echo(f"{rule.name:13}  {rule.kind}  {rule.title}")
            click.echo(f"{'':20}when {'; '.join(map(str, rule.when))}")
        count = sum(len(rule.fixtures) for rule in rules)
        click.echo(f"{len(rules)} rules, {count} fixtures, {len(findings)} faults")
        print_findings(findings)
    if findings:
        raise click.exceptions.Exit(EXIT_BAD)


def _document(rule: ScoreRule) -> dict[str, Any]:
    return {
        "class": rule.name,
        "kind": rule.kind,
        "title": rule.title,
        "when": [str(condition) for condition in rule.when],
        "advice": list(rule.advice),
        "gain": rule.gain or None,
        "fixtures": [{"features": dict(fixture.features), "class": fixture.name} for fixture in rule.fixtures],
        "file": rule.file,
        "line": rule.line,
    }
