"""What is said of an image that a command has just made, and the exit code of that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from cordee.core.draw.clean import clean
from cordee.core.errors import EXIT_BAD, EXIT_DONE


def show_findings(findings: Iterable[dict[str, Any]]) -> None:
    """Print findings beside the output, each with what to do."""
    for one in findings:
        click.echo(clean(f"{one['severity']}: {one['text']} - {one['rule']}"), err=True)
        if one["next"]:
            click.echo(clean(f"  next: {one['next']}"), err=True)


def arrival_code(findings: Iterable[dict[str, Any]]) -> int:
    """Return the exit code: what the site refuses is no success, although the image is there."""
    return EXIT_BAD if any(one["severity"] == "error" for one in findings) else EXIT_DONE
