"""Progress of long work on data, on standard error: a bar in a terminal, else a line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from cordee.core.units import format_duration, format_size

LINE_EVERY_S = 10.0

Tell = Callable[[int, int], None]


@contextmanager
def progress(what: str, samples: int, total_bytes: int) -> Iterator[Tell]:
    """Give a function that is told (samples, bytes) done so far, and shows them with rate and remaining time."""
    if sys.stderr.isatty():
        with _bar(what, samples, total_bytes) as tell:
            yield tell
    else:
        yield _lines(what, samples, total_bytes)


@contextmanager
def _bar(what: str, samples: int, total_bytes: int) -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    # It is drawn when it is told something, not by a thread: processes are forked meanwhile.
    shown = Progress(
        TextColumn(what),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[samples]}"),
        console=Console(stderr=True),
        auto_refresh=False,
    )
    task = shown.add_task(what, total=total_bytes or None, samples="")
    last = 0.0

    def tell(done_samples: int, done_bytes: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 0.1 or done_samples >= samples:
            last = now
            shown.update(task, completed=done_bytes, samples=f"{done_samples:,} of {samples:,} samples")
            shown.refresh()

    shown.start()
    try:
        yield tell
    finally:
        shown.stop()


def _lines(what: str, samples: int, total_bytes: int) -> Tell:
    began = last = time.monotonic()
    begun_bytes: int | None = None

    def tell(done_samples: int, done_bytes: int) -> None:
        nonlocal last, begun_bytes
        if begun_bytes is None:
            begun_bytes = done_bytes
        now = time.monotonic()
        if now - last < LINE_EVERY_S:
            return
        last = now
        rate = (done_bytes - begun_bytes) / (now - began)
        left = format_duration((total_bytes - done_bytes) / rate) if rate else "unknown"
        text = (
            f"{what}: {done_samples:,} of {samples:,} samples, {format_size(done_bytes)} of {format_size(total_bytes)}"
        )
        click.echo(f"{text}, {format_size(rate)}/s, {left} left", err=True)

    return tell
