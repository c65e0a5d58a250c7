"""`cordee data verify`."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option
from cordee.systems.data.cli.named import catalogue_option, place_of

SCHEMA = "cordee.systems.data.verify/1"
_SHOWN = 20


@click.command("verify")
@click.argument("path", metavar="DATASET")
@click.option(
    "--quick", is_flag=True, help="Only sizes, the index's check sums, and of each shard two headers and a few samples."
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes that read (default: cores, at most 8).")
@catalogue_option
@json_option
def command(path: str, quick: bool, workers: int | None, cluster: str | None, as_json: bool) -> None:
    """Compare a packed data set or token set with its index: every byte, every header.

    DATASET is a path, an s3:// address, or a name: of [data] in the cordee.toml here, or of the site's catalogue. Damaged
    samples are named by key, shard and offset. Exit code 1: something is damaged or missing.

    \b
    Example:
      cordee data verify /scratch/images
      cordee data verify /scratch/images --quick
    """
    path = place_of(path, cluster)
    if _is_token_set(path):
        from cordee.systems.data.cli.verifying_tokens import verify_set

        verify_set(path, SCHEMA, as_json=as_json)
        return
    from cordee.core.units import format_duration, format_size
    from cordee.systems.data.cli.progress import progress
    from cordee.systems.data.pack.shards.indexes import open_index_at
    from cordee.systems.data.pack.verify import verify

    index = open_index_at(path)
    with progress("verifying", index.samples, index.bytes) as tell:
        found = verify(path, quick=quick, workers=workers or min(8, len(os.sched_getaffinity(0))), tell=tell)
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "path": path,
                "id": found.id,
                "ok": not found.damaged,
                "contents_checked": found.checked,
                "shards": found.shards,
                "samples": found.samples,
                "bytes": found.bytes,
                "seconds": found.seconds,
                "damaged_samples": found.damaged_samples,
                "damaged": [asdict(damage) for damage in found.damaged],
            }
        )
    else:
        for damage in found.damaged[:_SHOWN]:
            what = f"{damage.key} ({damage.field}), byte {damage.offset} of " if damage.key is not None else ""
            click.echo(f"damaged: {what}{damage.shard}: {damage.reason}")
        if len(found.damaged) > _SHOWN:
            click.echo(f"... and {len(found.damaged) - _SHOWN} more: --json names all")
        looked = "every byte compared" if found.checked else "sizes and headers compared, contents not"
        shards = f"{found.shards} shard" + ("s" if found.shards != 1 else "")
        text = f"{found.samples:,} samples, {format_size(found.bytes)} in {shards}"
        result = f"{found.damaged_samples} samples are damaged" if found.damaged else "as packed"
        click.echo(f"{path}: {result}; {text}, {looked}; {format_duration(found.seconds)}")
    raise click.exceptions.Exit(EXIT_BAD if found.damaged else EXIT_DONE)


def _is_token_set(path: str) -> bool:
    from cordee.systems.data.node.read.tokens.index import find_token_set

    if "://" not in path:
        return find_token_set(path) is not None
    from cordee.systems.data.node.read.tokens.store import find_remote_set
    from cordee.systems.data.node.shards.index import INDEX_NAME
    from cordee.wire.stores import open_store

    if not path.endswith((".bin", ".idx")) and open_store(path.removesuffix(f"/{INDEX_NAME}")).look(INDEX_NAME):
        return False
    return find_remote_set(path) is not None
