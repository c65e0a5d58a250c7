"""The formats that can be imported, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.errors import DocumentError
from cordee.systems.score.exchange import gssr, gssr_record, prometheus, scrape
from cordee.systems.score.exchange.files import files_below
from cordee.systems.score.exchange.imported import ImportedSamples
from cordee.systems.score.exchange.write import refuse_existing, write_recording


class ImportFormat(NamedTuple):
    """A format: what its files are, for people, and how their names end."""

    what: str
    suffixes: tuple[str, ...]


FORMATS = {
    "gssr": ImportFormat("JSON files of gssr 0.4, or the folder of gssr-record 2", (".json", ".json.gz", ".csv")),
    "prometheus": ImportFormat(
        "answers of Prometheus' query_range with dcgm-exporter's metrics", (".json", ".json.gz")
    ),
    "dcgm-exporter": ImportFormat("text scrapes of dcgm-exporter with their moments", (".txt", ".txt.gz", ".prom")),
}


def import_files(name: str, paths: Sequence[Path], out: Path) -> dict[str, Any]:
    """Make a recording of other tools' files and return what is in it; see `write_recording`.

    Args:
        name: one of FORMATS.
        paths: files, or folders that hold them.

    Raises:
        UsageError: a file is not there, or `out` is.
        DocumentError: a file is not of this format; says where.
    """
    refuse_existing(out)
    chosen = FORMATS[name]
    files = files_below(paths, lambda path: path.name.endswith(chosen.suffixes), chosen.what)
    return write_recording(_read(name, files), out)


def _read(name: str, files: list[Path]) -> ImportedSamples:
    if name == "prometheus":
        return prometheus.read_prometheus(files)
    if name == "dcgm-exporter":
        return scrape.read_scrapes(files)
    tables = [path for path in files if path.suffix == ".csv"]
    if not tables:
        return gssr.read_gssr(files)
    if len(tables) < len(files):
        raise DocumentError(
            "these are files of both generations of gssr",
            given=f"{files[0].name}, {tables[0].name}",
            allowed="JSON files of gssr 0.4, or CSV files of gssr-record 2",
            next="import each into a folder of its own",
        )
    return gssr_record.read_gssr_record([path for path in tables if gssr_record.is_table(path)] or tables)
