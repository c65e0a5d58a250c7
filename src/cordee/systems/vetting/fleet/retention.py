"""Keeping the history small, and handing it on."""

from __future__ import annotations

import csv
import io
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cordee.core.units import utc_text
from cordee.systems.vetting.fleet.history import history_files, read_vetting
from cordee.systems.vetting.fleet.index import FleetIndex

COLUMNS = (
    "at", "cluster", "job", "run", "user", "protocol", "vetting", "node", "verdict", "check", "status", "value", "unit",
    "threshold", "cause", "reference", "model", "rule", "kind", "evidence",
)  # fmt: skip
_QUERY = """
SELECT results.at, cluster, job, run, user, protocol, results.vetting, results.node, nodes.verdict, chk AS "check", status,
value, results.unit, threshold, cause, reference, model, rule, kind, evidence
FROM results JOIN vettings ON vettings.id = results.vetting
JOIN nodes ON nodes.vetting = results.vetting AND nodes.node = results.node
WHERE results.at >= ? ORDER BY results.at, results.vetting, results.node, chk
"""


def old_files(folder: Path, keep_s: float) -> list[Path]:
    """Return the history's files that are older than `keep_s` seconds."""
    limit = time.time() - keep_s
    last_day = utc_text(limit)[:10]
    found = []
    for path in history_files(folder):
        if path.parent.name > last_day:
            break
        vetting = read_vetting(path)
        at = vetting.at if vetting is not None else path.stat().st_mtime
        if at < limit:
            found.append(path)
    return found


def remove_files(paths: list[Path]) -> None:
    """Remove files of a history, and folders of days that are empty then."""
    for path in paths:
        path.unlink(missing_ok=True)
    for day in {path.parent for path in paths}:
        if not any(entry.suffix == ".jsonl" for entry in day.iterdir()):
            shutil.rmtree(day, ignore_errors=True)


def export_rows(index: FleetIndex, since: float) -> Iterator[dict[str, Any]]:
    """Yield every result since a time with what belongs to it, the oldest first; the keys are `COLUMNS`."""
    for row in index.rows(_QUERY, since):
        yield {**dict(row), "at": utc_text(row["at"])}


def as_csv(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a CSV file with a header; a text that a spreadsheet would take for a formula gets a quote."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _harmless(value) for key, value in row.items()})
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def as_json_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yield one line of JSON for each row."""
    for row in rows:
        yield json.dumps(row, separators=(",", ":")) + "\n"


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value
