"""`cordee data pack --index-only`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.systems.data.cli.progress import progress

SCHEMA = "cordee.systems.data.index/1"


def index_shards(source: str, to: str | None, *, name: str, workers: int, crc: bool, as_json: bool) -> None:
    """Write the index of shards that are there, and say what they hold."""
    from cordee.core.units import format_duration, format_size, utc_text
    from cordee.systems.data.pack.shards import index_only

    with progress("indexing", 0, 0) as tell:
        indexed = index_only.index_shards(source, to, name=name, workers=workers, crc=crc, tell=tell)
    packed = indexed.packed
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "path": packed.path,
                "index": packed.index,
                "id": packed.id,
                "shards": packed.shards,
                "samples": packed.samples,
                "bytes": packed.bytes,
                "seconds": packed.seconds,
                "resumed_shards": packed.resumed_shards,
                "already": packed.already,
                "duplicate_keys": indexed.duplicates,
                "duplicates": indexed.duplicate_keys,
                "left_out": {kind: len(names) for kind, names in packed.left_out.items()},
            }
        )
        return
    shards = f"{packed.shards} shard{'s' if packed.shards != 1 else ''}"
    text = f"{packed.samples:,} samples, {format_size(packed.bytes)} in {shards}"
    if packed.already:
        click.echo(f"{packed.index}: indexed already at {utc_text(packed.packed_s)}: {text}; nothing was done")
        return
    click.echo(f"{packed.index}: {text}; {format_duration(packed.seconds)}")
    for kind, names in packed.left_out.items():
        click.echo(
            f"left out, {kind}: {len(names)} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})", err=True
        )
    if indexed.duplicates:
        shown = ", ".join(indexed.duplicate_keys[:5])
        click.echo(f"warn: {indexed.duplicates} keys occur more than once: {shown}", err=True)
