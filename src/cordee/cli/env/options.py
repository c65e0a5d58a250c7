"""Options that the commands about one EDF share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def edf_arguments(function: F) -> F:
    """Add FILE, and how it is read."""
    for decorate in reversed(
        [
            click.argument("file"),
            click.option(
                "--on", "cluster", metavar="CLUSTER", help="Whose profile counts (default: CORDEE_ON, else local)."
            ),
            click.option(
                "--lenient", is_flag=True, help="Keep keys and mount flags that are not known, with a warning."
            ),
        ]
    ):
        function = decorate(function)
    return function
