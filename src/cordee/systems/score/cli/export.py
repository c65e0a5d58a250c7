"""`cordee score export`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.core.units import DURATION_FORMS, parse_duration
from cordee.job.terminal.options import json_option

EXPORT_SCHEMA = "cordee.score-export/1"


@click.command("export")
@click.argument("folder", metavar="DIR")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--to", "kind", required=True, type=click.Choice(["parquet", "csv", "json"]), help="What to write.")
@click.option("--group", metavar="GROUP", help="gpu, rank or node (default: the first of them that was sampled).")
@click.option("--metrics", metavar="NAMES", help="Only these, separated by commas (default: all).")
@click.option("--every", metavar="TIME", help="Means over this time, as 60s (default: every sample).")
@click.option(
    "--shape", type=click.Choice(["wide", "long"]), default="wide", show_default=True, help="Columns or rows."
)
@json_option
def command(
    folder: str,
    out: Path,
    kind: str,
    group: str | None,
    metrics: str | None,
    every: str | None,
    shape: str,
    as_json: bool,
) -> None:
    """Write the samples of a recording or a run, DIR, as one table to OUT.

    Wide tables have a column per metric, long ones a row per value; both begin with time (UTC), node and device.

    \b
    Example:
      cordee score export recording samples.parquet --to parquet
      cordee score export recording minutes.csv --to csv --every 60s --metrics gpu_sm_ratio,gpu_power_watts
    """
    from cordee.core.words import counted
    from cordee.systems.score.exchange.table import open_table
    from cordee.systems.score.exchange.tablefiles import export_table
    from cordee.telemetry.store.reader import open_run

    names = [name.strip() for name in metrics.split(",") if name.strip()] if metrics else None
    table = open_table(open_run(folder, packed=True), group, names, _seconds(every) if every else None)
    rows = export_table(table, kind, out, shape)
    if as_json:
        print_json(
            {
                "schema": EXPORT_SCHEMA,
                "file": str(out),
                "format": kind,
                "group": table.group,
                "metrics": table.metrics,
                "devices": len(table.devices),
                "cadence_s": table.cadence_s,
                "rows": rows,
            }
        )
        return
    devices, metrics = counted(len(table.devices), "device"), counted(len(table.metrics), "metric")
    click.echo(f"{out}: {counted(rows, 'row')}, {devices}, {metrics} of group {table.group}")


def _seconds(given: str) -> float:
    try:
        return float(parse_duration(given))
    except ValueError:
        raise UsageError("--every is not a duration", given=given, allowed=DURATION_FORMS) from None
