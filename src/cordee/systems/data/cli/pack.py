"""`cordee data pack`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option
from cordee.systems.data.cli.named import catalogue_option, place_of

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan, PackResult

SCHEMA = "cordee.systems.data.pack/1"
_MOST_WORKERS = 4


@click.command("pack")
@click.argument("source")
@click.option(
    "--to", metavar="PLACE", help="Where it is made: a new or empty folder, an s3:// address, or the path of an image."
)
@click.option(
    "--as",
    "target",
    default="webdataset",
    show_default=True,
    metavar="FORMAT",
    help="What is made: webdataset, squashfs, hdf5, zarr or tokens.",
)
@click.option("--shard-size", default="512MB", show_default=True, metavar="SIZE", help="What one shard should hold.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes that pack (default: cores, at most 4).")
@click.option("--name", default="", metavar="NAME", help="The data set's name (default: that of the folder).")
@click.option("--shuffle", type=int, metavar="SEED", help="Pack in an order shuffled by SEED instead of by name.")
@click.option("--labels", default="auto", metavar="HOW", help="folders: the first folder is the class; none; auto.")
@click.option(
    "--split",
    default="auto",
    metavar="HOW",
    help="Where names end and fields begin: at the first dot; at the last; auto.",
)
@click.option("--include", multiple=True, metavar="PATTERN", help="Pack only files like *.jpg.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files like *.tmp.")
@click.option("--follow", is_flag=True, help="Pack what symbolic links point to.")
@click.option("--files", "files_column", metavar="COLUMN", help="Of a table: the column of paths.")
@click.option("--label", "label_column", metavar="COLUMN", help="Of a table: the column of classes.")
@click.option(
    "--tokenizer", default="bytes", metavar="HOW", help="Of tokens: bytes, a tokenizer.json, MODULE:FUNCTION."
)
@click.option("--text", default="text", metavar="KEY", help="Of tokens: the key or column that holds a document.")
@click.option("--skip-unreadable", is_flag=True, help="Leave out, count and name what cannot be read.")
@click.option("--restart", is_flag=True, help="Throw away what is there and begin anew.")
@click.option("--no-sync", is_flag=True, help="Do not wait for the disk: a crash of the machine may lose shards.")
@click.option("--index-only", is_flag=True, help="SOURCE holds WebDataset shards: write only their index.")
@click.option("--no-crc", is_flag=True, help="With --index-only: read headers alone; damage is not noticed later.")
@catalogue_option
@json_option
def command(source: str, to: str | None, target: str, cluster: str | None, as_json: bool, **given: Any) -> None:
    """Pack SOURCE, a folder, archive or table of many small files, into few large shards with an index.

    SOURCE is a path, an s3:// address, or a name: of [data] in the cordee.toml here, or of the site's catalogue. Repeated
    when all is packed, the command says so and does nothing; where the source has changed since, it refuses.

    The shards are tar files as any WebDataset reader reads them. The same source gives the same bytes, for any number of
    workers; a call that was killed continues where it ended when it is repeated. Files that are equal up to the first dot of
    their name are one sample. With --index-only, shards that are there already get their index.

    \b
    Example:
      cordee data pack /store/images --to /scratch/images
      cordee data pack table.csv --files path --label species --to /scratch/birds
      cordee data pack /store/shards --index-only
      cordee data pack corpus.jsonl --as tokens --tokenizer tokenizer.json --to /scratch/corpus
    """
    source = place_of(source, cluster)
    if given["index_only"]:
        from cordee.systems.data.cli.index import index_shards

        index_shards(
            source,
            to,
            name=given["name"],
            workers=_workers(given["workers"]),
            crc=not given["no_crc"],
            as_json=as_json,
        )
        return
    if to is None:
        raise UsageError("where to pack to is missing", next="add --to PLACE")
    from cordee.systems.data.cli.progress import progress
    from cordee.systems.data.pack._base import PackOptions
    from cordee.systems.data.pack.build import pack, plan_of

    origin_options = {key: given[key] for key in ("follow", "files_column", "label_column")}
    names = {key: given[key] for key in ("split", "labels", "shuffle", "include", "exclude")}
    plan = plan_of(source, **names, origin_options={**origin_options, "work": to, "as_files": target == "squashfs"})
    options = PackOptions(
        shard_bytes=_shard_bytes(given["shard_size"]),
        workers=_workers(given["workers"]),
        skip_unreadable=given["skip_unreadable"],
        restart=given["restart"],
        durable=not given["no_sync"],
        name=given["name"],
        tokenizer=given["tokenizer"],
        text=given["text"],
    )
    try:
        with progress("packing", len(plan), plan.total_bytes) as tell:
            packed = pack(plan, to, options, target=target, tell=tell)
    finally:
        plan.origin.close()
    print_json(_document(source, target, plan, packed)) if as_json else _show(plan, packed)


def _workers(given: int | None) -> int:
    return given or min(_MOST_WORKERS, len(os.sched_getaffinity(0)))


def _shard_bytes(given: str) -> int:
    from cordee.core.units import parse_size

    try:
        size = parse_size(given)
    except ValueError as error:
        raise UsageError("invalid --shard-size", given=given, allowed=str(error)) from None
    if size < 1 << 16:
        raise UsageError("a shard is too small", given=given, allowed="at least 64KiB; 256MB to 1GB are usual")
    return size


def _document(source: str, target: str, plan: PackPlan, packed: PackResult) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "source": source,
        "path": packed.path,
        "index": packed.index,
        "format": target,
        "id": packed.id,
        "shards": packed.shards,
        "samples": packed.samples,
        "files": plan.files,
        "bytes": packed.bytes,
        "seconds": packed.seconds,
        "resumed_shards": packed.resumed_shards,
        "already": packed.already,
        "fields": list(plan.fields),
        "classes": len(plan.classes),
        "left_out": {kind: len(names) for kind, names in packed.left_out.items()},
        "notes": plan.notes,
    }


def _show(plan: PackPlan, packed: PackResult) -> None:
    from cordee.core.units import format_duration, format_size, utc_text

    rate = f", {format_size(packed.bytes / packed.seconds)}/s" if packed.seconds and not packed.resumed_shards else ""
    shards = f"{packed.shards} shard{'s' if packed.shards != 1 else ''}" if packed.index else _one(packed.path)
    text = f"{packed.samples:,} samples, {format_size(packed.bytes)} in {shards}"
    if packed.already:
        when = f" at {utc_text(packed.packed_s)}" if packed.packed_s is not None else ""
        click.echo(f"{packed.path}: already packed{when} and unchanged: {text}; nothing to do")
        return
    click.echo(f"{packed.path}: {text}; {format_duration(packed.seconds)}{rate}")
    if packed.resumed_shards:
        click.echo(f"{packed.resumed_shards} of them were whole already")
    for text in plan.notes:
        click.echo(f"note: {text}", err=True)
    for kind, names in packed.left_out.items():
        shown = f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        click.echo(f"left out, {kind}: {len(names)} ({shown})", err=True)
    if packed.index is None:
        return
    if plan.origin.root is not None and plan.files > packed.shards:
        files = "1 file" if packed.shards == 1 else f"{packed.shards:,} files"
        click.echo(f"an epoch opens {files} instead of {plan.files:,}")
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.basename(packed.path.rstrip("/"))).strip("-") or "data"
    click.echo(f'\nIn cordee.toml:\n\n[data.{name}]\nfrom = "{packed.path}"\n\nIn train.py:\n')
    length = ", length=1024" if packed.index.endswith(".idx") else ""
    click.echo(f'for batch in cordee.dataset("{name}", batch=256{length}): ...\n')
    click.echo(f"Measure it: cordee data bench {packed.path}")


def _one(path: str) -> str:
    return "one folder" if os.path.isdir(path) else "one file"
