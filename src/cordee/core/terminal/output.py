"""What every command prints in the same way."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from cordee.core.findings import Finding


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, default=str, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_findings(findings: list[Finding]) -> None:
    """Print findings on standard error, the grave ones last, where the eye is."""
    from cordee.core.draw.clean import clean

    order = {"info": 0, "warn": 1, "error": 2}
    for finding in sorted(findings, key=lambda finding: order.get(finding.severity, 2)):
        click.echo(clean(str(finding)), err=True)
