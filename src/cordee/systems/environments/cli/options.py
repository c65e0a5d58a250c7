"""Options that the commands about one EDF share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from cordee.core.errors import DocumentError
from cordee.core.terminal.output import print_json

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


@contextmanager
def every_fault(as_json: bool) -> Iterator[None]:
    """Print every fault of a document where only one JSON document may be printed: `findings` beside `error`."""
    try:
        yield
    except DocumentError as error:
        if not as_json:
            raise
        print_json({**error.document(), "findings": [finding.document() for finding in error.findings]})
        raise click.exceptions.Exit(error.exit_code) from None
