"""`cordee data survey`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.data.cli.named import place_of

if TYPE_CHECKING:
    from cordee.systems.data.survey.totals import Totals

_LINE_EVERY_S = 10.0


@click.command("survey")
@click.argument("path", metavar="DATASET")
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose storage to judge by (default: CORDEE_ON, else local).")
@click.option("--cross", is_flag=True, help="Look also where other file systems begin.")
@click.option("--resume", is_flag=True, help="Continue with a survey that was interrupted.")
@click.option("--last", is_flag=True, help="Show what the last survey found; look at nothing again.")
@click.option("--workers", type=click.IntRange(1, 16), metavar="N", help="At most so many processes.")
@click.option(
    "--purge-days",
    type=click.IntRange(0),
    default=7,
    show_default=True,
    metavar="N",
    help="Tell of purges so far ahead.",
)
@json_option
def command(
    path: str,
    cluster: str | None,
    cross: bool,
    resume: bool,
    last: bool,
    workers: int | None,
    purge_days: int,
    as_json: bool,
) -> None:
    """Count what a data set is made of, forecast what an epoch of it costs the storage, and say what to do.

    DATASET is a folder, a file, an s3:// address, or a name: of [data] in the cordee.toml here, or of the site's catalogue.
    Nothing is changed and no link followed. A survey that was killed continues with --resume.

    \b
    Example:
      cordee data survey /store/images
      cordee data survey /store/images --on alps --json
    """
    from cordee.core.draw.clean import clean
    from cordee.job.cluster import load_cluster
    from cordee.systems.data.survey.path_survey import judge, last_survey, survey
    from cordee.systems.data.survey.text import lines_of

    profile = load_cluster(cluster_name(cluster))
    place = place_of(path, cluster)
    if last:
        found = last_survey(place)
        if found is None:
            raise UsageError("no whole survey of this path is kept", given=path, next="leave --last away")
    else:
        with _progress() as tell:
            found = survey(place, cross=cross, workers=workers, resume=resume, progress=tell)
    judged = judge(found, profile, purge_days)
    if as_json:
        print_json(judged.document())
        return
    for line in lines_of(judged):
        click.echo(clean(line))
    print_findings(list(judged.findings))


@contextmanager
def _progress() -> Iterator[Callable[[Totals], None]]:
    """Give what tells of progress on standard error: in place on a terminal, else a line now and then."""
    terminal = sys.stderr.isatty()
    told_s = time.monotonic()

    def tell(totals: Totals) -> None:
        nonlocal told_s
        text = f"{totals.part['files']:,} files in {totals.part['folders']:,} folders"
        if terminal:
            click.echo(f"\r{text}\x1b[K", nl=False, err=True)
        elif time.monotonic() - told_s > _LINE_EVERY_S:
            told_s = time.monotonic()
            click.echo(f"cordee: {text}", err=True)

    try:
        yield tell
    except KeyboardInterrupt:
        click.echo("\ncordee: stopped; the same with --resume continues", err=True)
        raise
    finally:
        if terminal:
            click.echo("\r\x1b[K", nl=False, err=True)
