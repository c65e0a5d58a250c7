"""`cordee checkpoint publish`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option

SCHEMA = "cordee.checkpoint-publish/1"


@click.command("publish")
@click.argument("target", metavar="PATH|RUN")
@click.option("--to", "place", required=True, metavar="PATH", help="A folder, or a file with --archive, not there yet.")
@click.option("--licence", required=True, metavar="TEXT", help='What others may do with it, such as "Apache-2.0".')
@click.option("--name", metavar="NAME", help="Its name in the catalogue (default: the last part of --to).")
@click.option("--about", default="", metavar="TEXT", help="What it is, in a few words.")
@click.option("--archive", is_flag=True, help="Write one file, a tar that begins with an index.")
@click.option(
    "--catalogue", metavar="FILE", help="A cluster profile that gets its [datasets.NAME] (default: print it)."
)
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Convert floating-point weights.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Files written or read at once.")
@runs_option
@json_option
def command(
    target: str,
    place: str,
    licence: str,
    name: str | None,
    about: str,
    archive: bool,
    catalogue: str | None,
    dtype: str | None,
    workers: int,
    runs: str | None,
    as_json: bool,
) -> None:
    """Publish weights, or any folder of files, for others: read-only, with manifest, licence, check sums and a card.

    Of a run and of a checkpoint the weights are published as safetensors, as `cordee checkpoint export` writes them; any other
    folder or file as it is. `sha256sum -c SHA256SUMS` compares it at any time. Others find it by its name once it is in the
    catalogue of the site.

    \b
    Example:
      cordee checkpoint publish last --to /store/models/char-gpt-1 --licence Apache-2.0 --about "bytes of Python"
      cordee checkpoint publish results --to /store/sets/results.tar --archive --licence CC-BY-4.0
    """
    from cordee.core.draw.clean import clean
    from cordee.core.units import format_size
    from cordee.core.words import counted
    from cordee.systems.checkpoints.publication import SiteCatalogue, Terms, publish

    fill, source, facts = _what(target, runs, dtype, workers)
    terms = Terms(name or Path(place).name.partition(".")[0], licence, about, source, facts)
    listed = SiteCatalogue(Path(catalogue), terms.name) if catalogue is not None else None
    done = publish(fill, place, terms, archive=archive, workers=workers)
    if listed is not None:
        listed.add(done["catalogue"])
    if as_json:
        print_json({"schema": SCHEMA, "name": terms.name, "licence": licence, "source": source, **facts, **done})
        return
    click.echo(clean(f"{counted(done['files'], 'file')}, {format_size(done['bytes'])}, of {source} in {done['path']}"))
    if listed is None:
        click.echo(f"for the catalogue of the site (its cluster profile):\n{clean(done['catalogue'])}", nl=False)


def _what(
    target: str, runs: str | None, dtype: str | None, workers: int
) -> tuple[Callable[[str], None], str, dict[str, Any]]:
    """Return what fills the publication, where that came from, and what is known of it."""
    from cordee.core.errors import UsageError
    from cordee.runs.folder import RunFolder
    from cordee.systems.checkpoints.library import library_of, newest_on
    from cordee.systems.checkpoints.node.folder import MANIFEST
    from cordee.systems.checkpoints.publication import copied
    from cordee.systems.checkpoints.safetensors import export

    path = Path(target)
    is_checkpoint = any((path / name).exists() for name in (MANIFEST, ".metadata")) or any(path.glob("step-*"))
    if path.exists() and not RunFolder(path).exists() and not is_checkpoint:
        if dtype is not None:
            raise UsageError("--dtype converts weights of a checkpoint", given=target, next="leave it out")
        return copied(str(path)), str(path.absolute()), {}
    chosen = newest_on(library_of(target, runs))
    known = {"run": chosen.run, "step": chosen.step}

    def weights(folder: str) -> None:
        Path(folder).rmdir()
        export(chosen.path, folder, dtype, 5 * 10**9, workers)

    return weights, chosen.name, {key: value for key, value in known.items() if value is not None}
