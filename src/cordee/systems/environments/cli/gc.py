"""`cordee env gc`."""

from __future__ import annotations

import click

from cordee.core.terminal.output import print_json
from cordee.core.units import format_size
from cordee.job.terminal.options import duration, json_option
from cordee.systems.environments.cli.store import open_store, store_options

GC_SCHEMA = "cordee.images-collected/1"


@click.command("gc")
@click.option("--older-than", metavar="TIME", help="Remove also images with names that were not used for so long.")
@click.option("--in-use", default="7d", show_default=True, metavar="TIME", help="What was used within this time stays.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@store_options
@json_option
def command(
    older_than: str | None, in_use: str, dry_run: bool, store: str | None, cluster: str | None, as_json: bool
) -> None:
    """Clear the store of images that no name means any more, and of what interrupted imports have left.

    \b
    Example:
      cordee env gc
      cordee env gc --older-than 30d --dry-run
    """
    from cordee.systems.environments.images.store.garbage import collect, removable

    kept = open_store(store, cluster)
    older_than_s = duration(older_than, "--older-than") if older_than else None
    found = removable(kept, older_than_s=older_than_s, in_use_s=duration(in_use, "--in-use"))
    if not dry_run:
        collect(kept, found)
    freed = sum(each.size_bytes for each in found)
    if as_json:
        print_json(
            {
                "schema": GC_SCHEMA,
                "store": str(kept.folder),
                "removed": not dry_run,
                "things": [
                    {
                        "path": str(each.path),
                        "digest": each.image.digest if each.image else None,
                        "reason": each.reason,
                        "size_bytes": each.size_bytes,
                    }
                    for each in found
                ],
                "size_bytes": freed,
            }
        )
        return
    for each in found:
        click.echo(f"{each.path.name}: {each.reason}, {format_size(each.size_bytes)}")
    click.echo(f"{'would remove' if dry_run else 'removed'} {len(found)} things, {format_size(freed)}")
