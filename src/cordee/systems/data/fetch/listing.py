"""The list of what is to be fetched: a URL a line, or a table with columns for URL, checksums, name and type."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.documents.texts import lines_of
from cordee.core.errors import UsageError
from cordee.machine.foreign_files import parse_json

COLUMNS: dict[str, tuple[str, ...]] = {
    "url": ("url", "URL", "image_url", "link"),
    "sha256": ("sha256",),
    "md5": ("md5",),
    "name": ("name", "file", "filename", "key"),
    "type": ("type", "content_type", "mime"),
}
_MOST = 5_000_000
_DIGESTS = {"sha256": re.compile(r"[0-9a-f]{64}"), "md5": re.compile(r"[0-9a-f]{32}")}
FORMS = (
    "a URL a line; .csv, .tsv, .jsonl or .parquet with a column url, and sha256, md5, name, type where they are known"
)


class WantedFile(NamedTuple):
    """One file that is to be fetched; empty texts: nothing is known."""

    url: str
    sha256: str = ""
    md5: str = ""
    name: str = ""
    type: str = ""


def read_list(path: Path) -> list[WantedFile]:
    """Return what a list asks for, in its order; a URL with the same name twice counts once.

    Raises:
        UsageError: it cannot be read, has no URLs or too many, or a line of it is wrong.
        DocumentError: it is no text whose encoding is clear.
    """
    try:
        rows = _rows(path)
        found: dict[WantedFile, None] = {}
        for line, row in rows:
            wanted = _wanted(row, path, line)
            if wanted.url:
                found[wanted] = None
            if len(found) > _MOST:
                raise UsageError(f"the list has more than {_MOST:,} URLs", given=str(path), next="split it")
    except OSError as error:
        raise UsageError(f"the list cannot be read: {error.strerror}", given=str(path), allowed=FORMS) from None
    except (csv.Error, ValueError) as error:
        raise UsageError(f"the list cannot be read: {error}", given=str(path), allowed=FORMS) from None
    if not found:
        raise UsageError("the list has no URLs", given=str(path), allowed=FORMS)
    return list(found)


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from enumerate(_parquet(path), 1)
        return
    if not path.is_file():
        raise UsageError("the list is no file", given=str(path), allowed=FORMS)
    if suffix in (".csv", ".tsv"):
        yield from enumerate(csv.DictReader(lines_of(path), delimiter="\t" if suffix == ".tsv" else ","), 2)
        return
    for number, line in enumerate(lines_of(path), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if suffix in (".jsonl", ".ndjson"):
            row = parse_json(text)
            if not isinstance(row, dict):
                raise UsageError("a line of the list is no JSON object", given=f"{path}:{number}", allowed=FORMS)
            yield number, row
        else:
            yield number, {"url": text}


def _parquet(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError("reading a .parquet list needs pyarrow", given=str(path), next="pip install pyarrow") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
        known = [name for names in COLUMNS.values() for name in names if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=known):
            yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise UsageError(f"the list cannot be read: {error}", given=str(path), allowed=FORMS) from None


def _wanted(row: Mapping[str, Any], path: Path, line: int) -> WantedFile:
    values = {
        key: next((str(row[name]).strip() for name in names if row.get(name) is not None), "")
        for key, names in COLUMNS.items()
    }
    if not any(name in row for name in COLUMNS["url"]):
        raise UsageError(
            "the list has no column url", given=f"{path}: {', '.join(map(str, list(row)[:8]))}", allowed=FORMS
        )
    for kind, form in _DIGESTS.items():
        values[kind] = values[kind].lower().removeprefix(f"{kind}:")
        if values[kind] and not form.fullmatch(values[kind]):
            raise UsageError(f"that is no {kind}", given=f"{path}:{line}: {values[kind][:80]!r}")
    return WantedFile(**values)
