"""`cordee nodes baseline`, `export` and `prune`."""

from __future__ import annotations

import sys
import time

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import duration, json_option
from cordee.systems.vetting.cli.nodes.options import epoch_since, history_options, open_history, since_option


@click.command("baseline")
@click.option("--model", metavar="GPU", help="Only results of this GPU model.")
@since_option("28d")
@history_options
@json_option
def baseline_command(model: str | None, since: str, as_json: bool, **where: str | None) -> None:
    """Show what the fleet reaches in each speed check; with --json as [vetting] baseline of a profile takes it.

    \b
    Example:
      cordee nodes baseline --json
    """
    from cordee.systems.vetting.fleet.baseline import fleet_baseline

    index, _, _ = open_history(**where)
    values, left_out = fleet_baseline(index, epoch_since(since), model)
    for text in left_out:
        click.echo(f"left out: {text}", err=True)
    if as_json:
        print_json(values)
        return
    if not values:
        click.echo(f"no speed check is known from enough nodes in the last {since}", err=True)
    for check, entry in values.items():
        unit = f" {entry['unit']}" if entry["unit"] else ""
        click.echo(
            f"{check:22}  {entry['value']:.4g}{unit} (P75), {entry['median']:.4g}{unit} (median), {entry['n']} nodes"
        )


@click.command("export")
@since_option("28d")
@click.option("--format", "form", type=click.Choice(["csv", "jsonl"]), default="csv", help="Default: csv.")
@click.option("-o", "--output", metavar="FILE", help="Write here instead of standard output.")
@history_options
@json_option
def export_command(since: str, form: str, output: str | None, as_json: bool, **where: str | None) -> None:
    """Write every result as a row: CSV or JSON lines.

    \b
    Example:
      cordee nodes export --since 28d -o results.csv
    """
    from cordee.systems.vetting.fleet.retention import as_csv, as_json_lines, export_rows

    if as_json and not output:
        raise UsageError("--json says what was written, so the rows need a file", next="add -o FILE")
    index, _, _ = open_history(**where)
    rows = export_rows(index, epoch_since(since))
    lines = as_csv(rows) if form == "csv" else as_json_lines(rows)
    if not output:
        sys.stdout.writelines(lines)
        return
    count = -1 if form == "csv" else 0
    try:
        with open(output, "w", encoding="utf-8", newline="") as file:
            for line in lines:
                file.write(line)
                count += line.count("\n")
    except OSError as error:
        raise UsageError(f"cannot write it: {error.strerror}", given=output) from None
    if as_json:
        print_json({"schema": "cordee.export/1", "file": output, "format": form, "rows": count})
    else:
        click.echo(f"wrote {count} rows into {output}", err=True)


@click.command("prune")
@click.option("--keep", required=True, metavar="TIME", help="What is younger stays, such as 90d.")
@click.option("--yes", is_flag=True, help="Do it; without this, only what would be removed is shown.")
@history_options
@json_option
def prune_command(keep: str, yes: bool, as_json: bool, **where: str | None) -> None:
    """Remove vettings that are old; the audit trail stays. A dry run unless told otherwise.

    \b
    Example:
      cordee nodes prune --keep 90d
      cordee nodes prune --keep 90d --yes
    """
    from cordee.systems.vetting.fleet.retention import old_files, remove_files

    keep_s = duration(keep, "--keep")
    if keep_s < 86400:
        raise UsageError("--keep is too short", given=keep, allowed="at least 1d")
    index, place, _ = open_history(**where)
    if place.folder is None:
        raise UsageError("a collector's history is pruned where it lies", next="run it there with --history DIR")
    began = time.monotonic()
    paths = old_files(place.folder, keep_s)
    if yes:
        remove_files(paths)
        index.refresh()
    if as_json:
        print_json({"schema": "cordee.prune/1", "removed": yes, "files": [str(path) for path in paths]})
        return
    verb = "removed" if yes else "would remove"
    click.echo(f"{verb} {len(paths)} vettings that are older than {keep} ({time.monotonic() - began:.1f} s)")
