"""The history as one SQLite file: quick to ask, and rebuilt from the files whenever it is not there."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError
from cordee.systems.vetting.fleet.history import PastVetting, history_files, read_vetting

PAIRS = "pair.bandwidth"
VERSION = 2
_BUSY_S = 30.0
_FEW = 200
_TABLES = """
CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, vetting TEXT);
CREATE TABLE vettings (
  id TEXT PRIMARY KEY, at REAL, cluster TEXT, job TEXT, run TEXT, user TEXT, protocol TEXT, digest TEXT, verdict TEXT,
  reason TEXT, nodes INTEGER, torn INTEGER);
CREATE INDEX vettings_at ON vettings (at);
CREATE TABLE nodes (vetting TEXT, at REAL, node TEXT, verdict TEXT, partners TEXT, PRIMARY KEY (vetting, node));
CREATE INDEX nodes_at ON nodes (node, at);
CREATE TABLE results (
  vetting TEXT, at REAL, node TEXT, chk TEXT, name TEXT, status TEXT, value REAL, unit TEXT, threshold REAL, cause TEXT,
  reference TEXT, model TEXT, rule TEXT, kind TEXT, scope TEXT, action TEXT, evidence TEXT, devices TEXT, low INTEGER, counts INTEGER);
CREATE INDEX results_node ON results (node, at);
CREATE INDEX results_vetting ON results (vetting);
CREATE INDEX results_chk ON results (chk, at);
"""


def index_path(folder: Path) -> Path:
    """Return where the index of a history lies: in the user's cache, since SQLite's locks want a disk of this machine."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "cordee" / f"history-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}.sqlite"


class FleetIndex:
    """The index of one history's folder; any number of processes may use it at once.

    Args:
        folder: the history's.
        path: of the index; default: in the user's cache.
    """

    def __init__(self, folder: str | Path, path: Path | None = None) -> None:
        self.folder = Path(folder)
        self.path = path or index_path(self.folder)

    def refresh(self) -> int:
        """Take in what is new below the folder, and forget what is gone; return how many files were read.

        Raises:
            CordeeError: the index cannot be written.
        """
        try:
            return self._refresh()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                raise CordeeError(f"the index cannot be used: {error}", given=str(self.path)) from None
        for suffix in ("", "-wal", "-shm"):  # damaged: it is derived, so it is made anew
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        return self._refresh()

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of a query.

        Raises:
            CordeeError: the index cannot be read.
        """
        try:
            with self._connection() as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise CordeeError(f"the index cannot be read: {error}", given=str(self.path)) from None

    def _refresh(self) -> int:
        with self._connection() as connection:
            known = {path: (size, mtime) for path, size, mtime, _ in connection.execute("SELECT * FROM files")}
            present, fresh = set(), []
            for path in history_files(self.folder):
                name = f"{path.parent.name}/{path.name}"
                try:
                    status = path.stat()
                except OSError:
                    continue
                present.add(name)
                if known.get(name) != (status.st_size, status.st_mtime_ns):
                    fresh.append((name, path, status))
            gone = set(known) - present
            if gone:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    for name in gone:
                        _forget(connection, name)
            for start in range(0, len(fresh), _FEW):
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    for name, path, status in fresh[start : start + _FEW]:
                        _take(connection, name, status, read_vetting(path))
            return len(fresh)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CordeeError(f"the index cannot be made: {error.strerror}", given=str(self.path)) from None
        with closing(sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                _make_tables(connection)
            yield connection


def _make_tables(connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION:
            return  # another process was quicker
        for table in ("files", "vettings", "nodes", "results"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _TABLES.split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={VERSION}")


def _forget(connection: sqlite3.Connection, name: str) -> None:
    row = connection.execute("SELECT vetting FROM files WHERE path = ?", (name,)).fetchone()
    connection.execute("DELETE FROM files WHERE path = ?", (name,))
    if row is None or row[0] is None:
        return
    if connection.execute("SELECT 1 FROM files WHERE vetting = ?", (row[0],)).fetchone() is None:
        for table, key in (("vettings", "id"), ("nodes", "vetting"), ("results", "vetting")):
            connection.execute(f"DELETE FROM {table} WHERE {key} = ?", (row[0],))


def _take(connection: sqlite3.Connection, name: str, status: os.stat_result, vetting: PastVetting | None) -> None:
    _forget(connection, name)
    identifier = vetting.header["id"] if vetting else None
    entry = (name, status.st_size, status.st_mtime_ns, identifier)
    connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", entry)
    if vetting is None or connection.execute("SELECT 1 FROM vettings WHERE id = ?", (identifier,)).fetchone():
        return
    header, at = vetting.header, vetting.at
    fields = ("cluster", "job", "run", "user", "protocol", "digest", "verdict", "reason")
    connection.execute(
        f"INSERT INTO vettings VALUES ({', '.join('?' * 12)})",
        (identifier, at, *(_text(header.get(key)) for key in fields), len(vetting.nodes), vetting.torn),
    )
    well = [node["node"] for node in vetting.nodes if node["verdict"] in ("healthy", "suspect")]
    connection.executemany(
        "INSERT INTO nodes VALUES (?, ?, ?, ?, ?)",
        [(identifier, at, node["node"], node["verdict"], _partners(node, well)) for node in vetting.nodes],
    )
    connection.executemany(
        f"INSERT INTO results VALUES ({', '.join('?' * 20)})",
        [_row(identifier, at, node, result, header) for node in vetting.nodes for result in node.get("results", [])],
    )


def _row(identifier: Any, at: float, node: dict[str, Any], result: dict[str, Any], header: dict[str, Any]) -> Any:
    rule = result.get("rule") or {}
    return (
        identifier, at, node["node"], result["check"], result.get("name"), result["status"], result.get("value"),
        _text(result.get("unit")), _number(result.get("threshold")), _text(result.get("cause")),
        (result.get("reference") or {}).get("kind") if isinstance(result.get("reference"), dict) else None,
        _text(result.get("model")), rule.get("id"), rule.get("kind"), rule.get("scope"), rule.get("action"),
        _text(result.get("evidence")), json.dumps(result["devices"]) if result.get("devices") else None,
        bool(result.get("low")) or result["check"] == PAIRS,
        _counts(node, result, header),
    )  # fmt: skip


def _counts(node: dict[str, Any], result: dict[str, Any], header: dict[str, Any]) -> bool:
    """Return whether the result says something against the node: it was judged so, and not put down to confusion."""
    if node["verdict"] not in ("bad", "unknown") or result["status"] not in ("fail", "unknown"):
        return False
    for entry in [*header.get("confused", []), *header.get("unavailable", [])]:
        if isinstance(entry, dict) and entry.get("check") in (result["check"], result.get("name")):
            nodes = entry.get("nodes")
            if not isinstance(nodes, list) or node["node"] in nodes:
                return False
    return True


def _partners(node: dict[str, Any], well: list[str]) -> str:
    """Return the nodes that the node was held against: those of its pairs, else those of the allocation that were well."""
    pairs = sorted({str(pair["node"]) for pair in node.get("pairs", []) if pair.get("node")})
    return json.dumps(pairs or [name for name in well if name != node["node"]][:64])


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
