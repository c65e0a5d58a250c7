"""`cordee data verify` of a token set."""

from __future__ import annotations

import time

import click

from cordee.core.errors import EXIT_BAD, CorruptDataError
from cordee.core.terminal.output import print_json


def verify_set(path: str, schema: str, *, as_json: bool) -> None:
    """Compare a token set with its index and its check sum, say what was found, and exit with 1 where it is damaged."""
    from cordee.core.units import format_duration, format_size
    from cordee.systems.data.pack.tokens.verify import verify_tokens

    began, fault = time.monotonic(), None
    try:
        found = verify_tokens(path)
    except CorruptDataError as error:
        found, fault = {}, error
    seconds = time.monotonic() - began
    if as_json:
        damaged = [{"reason": str(fault)}] if fault else []
        checked = bool(found.get("checked"))
        about = {"schema": schema, "path": path, "ok": not fault, "contents_checked": checked, "seconds": seconds}
        print_json({**about, "tokens": found.get("tokens"), "samples": found.get("documents"), "damaged": damaged})
    elif fault:
        click.echo(f"damaged: {fault}")
    else:
        looked = "every byte compared" if found["checked"] else "sizes and index compared: no check sum lies beside it"
        counts = f"{found['documents']:,} documents, {found['tokens']:,} tokens, {format_size(found['bytes'])}"
        click.echo(f"{path}: as packed; {counts}, {looked}; {format_duration(seconds)}")
    if fault:
        raise click.exceptions.Exit(EXIT_BAD)
