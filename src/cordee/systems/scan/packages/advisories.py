"""Advisories about packages of PyPI from a snapshot of OSV (https://ossf.github.io/osv-schema): a zip such as its `all.zip`, or a folder of such and of JSON.

A snapshot of tens of thousands of records is read once and kept in the person's cache as a table by package; whoever asks
afterwards waits for milliseconds. Nothing is fetched.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import sqlite3
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import Version

from cordee import __version__
from cordee.core.errors import UsageError
from cordee.core.words import counted
from cordee.machine.foreign_files import parse_json, read_regular, regular
from cordee.systems.scan.node.verdict import Sight
from cordee.systems.scan.packages.model import FoundPackage
from cordee.systems.scan.packages.names import normal

_RECORD_BYTES, _MOST_RECORDS, _MOST_DEPTH = 16 << 20, 2_000_000, 4
_OLD_S, _DAY_S = 30 * 86_400.0, 86_400.0
_TABLES = """
create table affected (name text, record text, about text);
create table facts (key text primary key, value text);
"""
_MOST_VERSION = 200  # letters; longer versions are made to take time
_RANKS = ("CRITICAL", "HIGH", "MODERATE", "MEDIUM", "LOW", "")


class Advisory(NamedTuple):
    """What is known against one version of one package, under all its names.

    Attributes:
        package: that it is about.
        ids: of the records, the best known first: CVE, then others.
        summary: one line.
        severity: as the record says it: `HIGH`; may be empty.
        fixed: later versions that are no longer affected, the lowest first.
        malicious: whether the package itself is an attack.
    """

    package: FoundPackage
    ids: tuple[str, ...]
    summary: str
    severity: str
    fixed: tuple[str, ...]
    malicious: bool


class SnapshotState(NamedTuple):
    """What is to be known of a snapshot before its silence is trusted.

    Attributes:
        path: of it.
        records: about packages of PyPI, withdrawn ones left out.
        unreadable: records that are none, or damaged.
        newest_s: when the newest was changed, seconds since the epoch.
        cut_off: why it could not be read to its end; empty: it was.
    """

    path: str
    records: int
    unreadable: int
    newest_s: float
    cut_off: str = ""

    def age(self, now_s: float) -> str:
        """Return how old the newest record is, in words."""
        days = (now_s - self.newest_s) / _DAY_S
        return f"{counted(int(days), 'day')} old" if days >= 1 else "of today" if days > -1 else "from the future"

    def sights(self, now_s: float) -> Iterator[Sight]:
        """Yield why the snapshot cannot be trusted to know all."""
        if self.cut_off:
            yield Sight("advisories-broken", "unknown", f"the snapshot cannot be read to its end: {self.cut_off}")
        if not self.records:
            yield Sight("advisories-broken", "unknown", "the snapshot holds no record of OSV about packages of PyPI")
            return
        if self.unreadable:
            said = f"{counted(self.unreadable, 'record')} of the snapshot cannot be read"
            yield Sight("advisories-broken", "unknown" if self.unreadable > self.records // 100 else "warn", said)
        day = datetime.datetime.fromtimestamp(self.newest_s, datetime.UTC).date().isoformat()
        if self.newest_s > now_s + _DAY_S:
            said = f"the newest advisory is of {day}, which is to come: the snapshot, or this machine's clock, is wrong"
            yield Sight("advisories-future", "unknown", said)
        elif now_s - self.newest_s > _OLD_S:
            said = f"the newest advisory is of {day}: what became known since is not in it"
            yield Sight("advisories-old", "warn", said)


class AdvisorySnapshot:
    """A snapshot, ready to be asked.

    Args:
        path: a zip of records, a JSON record, or a folder with such, some levels deep.
        cache: where its table is kept; None: in the person's cache.

    Raises:
        UsageError: there is nothing at the path.
    """

    def __init__(self, path: str, cache: Path | None = None) -> None:
        files = list(_files(Path(path).expanduser()))
        if not files:
            raise UsageError(
                "there is no snapshot of advisories",
                given=path,
                allowed="a zip or a folder of OSV records (JSON)",
                next="get `all.zip` of the ecosystem PyPI from OSV's exports, where there is a network",
            )
        base = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordee" / "scan"
        self._data = _kept(base, files) or _read_into(sqlite3.connect(":memory:"), files)
        facts = dict(self._data.execute("select key, value from facts").fetchall())
        self.state = SnapshotState(
            path,
            int(facts["records"]),
            int(facts["unreadable"]),
            float(facts["newest_s"]),
            facts["cut_off"],
        )

    def close(self) -> None:
        """Close its table."""
        self._data.close()

    def about(self, packages: Iterable[FoundPackage]) -> list[Advisory]:
        """Return what is known against packages; records of one thing under several names are one advisory."""
        found: list[Advisory] = []
        for package in dict.fromkeys(packages):
            if package.kind == "pypi" and package.version:
                found += _merged(package, list(self._records(package)))
        return sorted(found, key=lambda one: (not one.malicious, _rank(one.severity), one.package.name, one.ids))

    def _records(self, package: FoundPackage) -> Iterator[dict[str, Any]]:
        rows = self._data.execute("select about from affected where name = ?", (normal(package.name),))
        for (about,) in rows:
            record = json.loads(about)
            if _is_affected(package.version, record["affected"]):
                yield record


def _files(path: Path) -> Iterator[Path]:
    """Yield zips and records at a path, sorted, some levels deep; no link to a folder is followed."""
    if path.is_file():
        yield path
    elif path.is_dir():
        depth = len(path.parts)
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(folders) if len(Path(folder).parts) - depth < _MOST_DEPTH else []
            yield from (Path(folder, name) for name in sorted(names) if name.endswith((".json", ".zip")))


def _kept(base: Path, files: list[Path]) -> sqlite3.Connection | None:
    """Return the table of a snapshot from the cache, made now where it is not there; None: there is no cache."""
    key = hashlib.sha256(f"pypi {__version__}".encode())
    for file in files:
        about = file.stat()
        key.update(f"{file.absolute()} {about.st_ino} {about.st_size} {about.st_mtime_ns}\n".encode("utf-8", "replace"))
    place = base / f"advisories-{key.hexdigest()[:24]}.sqlite"
    with contextlib.suppress(OSError, sqlite3.Error):
        if place.is_file():
            data = sqlite3.connect(f"file:{place}?mode=ro", uri=True)
            data.execute("select 1 from facts where key = 'records'").fetchone()
            return data
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=base, prefix=".advisories-") as folder:
            made = Path(folder, "made")
            with contextlib.closing(sqlite3.connect(made)) as data:
                _read_into(data, files)
            for old in base.glob("advisories-*.sqlite"):
                if time.time() - old.stat().st_mtime > _OLD_S:
                    old.unlink(missing_ok=True)
            os.replace(made, place)
        return sqlite3.connect(f"file:{place}?mode=ro", uri=True)
    return None


def _read_into(data: sqlite3.Connection, files: list[Path]) -> sqlite3.Connection:
    """Write the table of a snapshot."""
    data.executescript(_TABLES)
    counts = {"records": 0, "unreadable": 0}
    newest = 0.0
    cut_off: list[str] = []
    for content in _contents(files, cut_off):
        record = _parsed(content)
        if record is None:
            counts["unreadable"] += 1
            continue
        newest = max(newest, _epoch(record.get("modified") or record.get("published")))
        if record.get("withdrawn"):
            continue
        rows = list(_rows(record))
        counts["records"] += bool(rows)
        if counts["records"] > _MOST_RECORDS:
            cut_off.append(f"it has more than {_MOST_RECORDS:,} records")
            break
        data.executemany("insert into affected values (?, ?, ?)", rows)
    data.execute("create index by_name on affected (name)")
    facts = {
        **counts,
        "newest_s": newest,
        "cut_off": "; ".join(cut_off[:3]),
    }
    data.executemany("insert into facts values (?, ?)", [(key, str(value)) for key, value in facts.items()])
    data.commit()
    return data


def _contents(files: list[Path], cut_off: list[str]) -> Iterator[bytes | None]:
    """Yield each record's bytes, None for one that cannot be read; why a file ends early goes into `cut_off`."""
    for file in files:
        try:
            if file.suffix != ".zip" and not _is_zip(file):
                yield read_regular(file, limit_bytes=_RECORD_BYTES)
                continue
            with open(file, "rb", opener=regular) as stream, zipfile.ZipFile(stream) as archive:
                for entry in archive.infolist():
                    if entry.filename.endswith(".json"):
                        yield _entry(archive, entry)
        except (OSError, zipfile.BadZipFile, NotImplementedError, EOFError) as error:
            cut_off.append(f"{file.name}: {getattr(error, 'strerror', None) or error}")


def _is_zip(file: Path) -> bool:
    with open(file, "rb", opener=regular) as stream:
        return stream.read(4) == b"PK\x03\x04"


def _entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes | None:
    try:
        with archive.open(entry) as stream:
            content = stream.read(_RECORD_BYTES + 1)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        return None
    return content if len(content) <= _RECORD_BYTES else None


def _parsed(content: bytes | None) -> dict[str, Any] | None:
    try:
        record = parse_json(content or b"")
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        return None
    return record if isinstance(record.get("affected", []), list) and "modified" in record else None


def _rows(record: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, record, what is kept) for each package of PyPI that a record is about."""
    by_package: dict[str, list[dict[str, Any]]] = {}
    for one in record.get("affected", []):
        package = one.get("package") if isinstance(one, dict) else None
        if not isinstance(package, dict) or not isinstance(package.get("name"), str):
            continue
        if package.get("ecosystem") != "PyPI":
            continue
        kept = {key: one[key] for key in ("versions", "ranges") if isinstance(one.get(key), list)}
        by_package.setdefault(normal(package["name"]), []).append(kept)
    said = {
        "id": record["id"],
        "aliases": [one for one in record.get("aliases") or () if isinstance(one, str)],
        "summary": str(record.get("summary") or record.get("details") or "").partition("\n")[0][:200],
        "severity": str(_table(record.get("database_specific")).get("severity") or "").upper()[:20],
    }
    for name, affected in by_package.items():
        yield name, record["id"], json.dumps({**said, "affected": affected})


def _version(text: Any) -> Version:
    if not isinstance(text, str):
        raise ValueError("it is no version")
    return Version(text[:_MOST_VERSION])


def _is_affected(version: str, affected: list[dict[str, Any]]) -> bool:
    """Return whether a version is one that a record is about, by its list of versions or its ranges."""
    try:
        own = _version(version)
    except ValueError:
        return any(version in one.get("versions", ()) for one in affected)
    for one in affected:
        if any(_is_same(version, own, each) for each in one.get("versions", ())):
            return True
        for span in one.get("ranges", ()):
            if _table(span).get("type") in ("ECOSYSTEM", "SEMVER") and _in_range(own, span.get("events")):
                return True
    return False


def _is_same(version: str, own: Version, other: Any) -> bool:
    if version == other:
        return True
    try:
        return isinstance(other, str) and other[:1] == version[:1] and _version(other) == own
    except ValueError:
        return False


def _in_range(own: Version, events: Any) -> bool:
    """Return whether a version lies in a range: the last event at or before it decides."""
    inside, rest = False, []
    for event in events if isinstance(events, list) else ():
        for kind, rank in (("introduced", 0), ("fixed", 1), ("limit", 1), ("last_affected", 2)):
            given = _table(event).get(kind)
            if kind == "introduced" and given == "0":
                inside = True
                continue
            try:
                rest.append((_version(given), rank))
            except ValueError:
                continue
    for at, rank in sorted(rest):
        if rank == 0 and own >= at:
            inside = True
        elif (rank == 1 and own >= at) or (rank == 2 and own > at):
            inside = False
    return inside


def _merged(package: FoundPackage, records: list[dict[str, Any]]) -> Iterator[Advisory]:
    """Yield one advisory for records that name each other."""
    groups: list[tuple[set[str], list[dict[str, Any]]]] = []
    for record in records:
        names, members = {record["id"], *record["aliases"]}, [record]
        apart = []
        for group in groups:
            if group[0] & names:
                names, members = names | group[0], members + group[1]
            else:
                apart.append(group)
        groups = [*apart, (names, members)]
    for names, members in groups:
        fixed = sorted({text for one in members for text in _fixed(one)}, key=_order)
        fixed = [text for text in fixed if _order(text) > _order(package.version)]
        malicious = any(one["id"].startswith("MAL-") for one in members)
        severity = min((one["severity"] for one in members), key=_rank)
        ids = sorted(names, key=lambda name: (not name.startswith("MAL-"), not name.startswith("CVE-"), name))
        summary = next((one["summary"] for one in members if one["summary"]), "")
        yield Advisory(package, tuple(ids), summary, severity, tuple(fixed), malicious)


def _fixed(record: dict[str, Any]) -> Iterator[str]:
    for one in record["affected"]:
        for span in one.get("ranges", ()):
            if _table(span).get("type") not in ("ECOSYSTEM", "SEMVER"):
                continue
            for event in span.get("events") or ():
                given = _table(event).get("fixed")
                if isinstance(given, str):
                    yield given


def _order(text: str) -> Any:
    try:
        return (1, _version(text))
    except ValueError:
        return (0, 0)


def _rank(severity: str) -> int:
    return _RANKS.index(severity) if severity in _RANKS else len(_RANKS)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _epoch(text: Any) -> float:
    try:
        time_ = datetime.datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return (time_ if time_.tzinfo else time_.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
