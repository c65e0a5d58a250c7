"""Reads the files of the history: a header line, then one line for each node; what is torn or foreign is left out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordee.core.units import parse_utc
from cordee.machine.foreign_files import read_regular
from cordee.systems.vetting.node.judge.history import SCHEMA

LARGEST_BYTES = 64_000_000
VERDICTS = ("continue", "exclude", "abort")
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}\Z")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_ID = re.compile(r"[A-Za-z0-9_.+-]{1,128}\Z")
_SHORT = ("cluster", "job", "run", "user", "protocol", "digest")


@dataclass(frozen=True)
class PastVetting:
    """One vetting of the history.

    Attributes:
        header: its first line.
        nodes: the lines of its nodes.
        at: when it was, UTC epoch seconds.
        torn: how many lines could not be read, or are missing.
    """

    header: dict[str, Any]
    nodes: list[dict[str, Any]] = field(default_factory=list)
    at: float = 0.0
    torn: int = 0


def history_files(folder: str | Path) -> Iterator[Path]:
    """Yield the files below a history's folder, day by day; none when it is not there."""
    root = Path(folder)
    try:
        days = sorted(path for path in root.iterdir() if _DAY.match(path.name))
    except OSError:
        return
    for day in days:
        try:
            yield from sorted(path for path in day.iterdir() if path.suffix == ".jsonl" and path.name[0] != ".")
        except OSError:
            continue


def read_vetting(path: Path) -> PastVetting | None:
    """Return the vetting in a file, None when it is no file of a history that this version reads."""
    try:
        content = read_regular(path, path.parent.parent, LARGEST_BYTES)
    except OSError:
        return None
    try:
        return parse_vetting(content)
    except ValueError:
        return None


def parse_vetting(content: bytes) -> PastVetting:
    """Return the vetting that a file's content holds; lines of nodes that cannot be read are counted, not kept.

    Raises:
        ValueError: the header is missing or wrong; says what is.
    """
    first, *rest = content.split(b"\n")
    header = _parse(first)
    if header is None:
        raise ValueError("the first line is no JSON object")
    _check_header(header)
    nodes, torn, seen = [], 0, set()
    for line in rest:
        if not line.strip():
            continue
        node = _parse(line)
        if node is None or node_fault(node) or node["node"] in seen:
            torn += 1
        else:
            seen.add(node["node"])
            nodes.append(node)
    expected = header.get("nodes", len(nodes))
    return PastVetting(header, nodes, parse_utc(header["at"]), max(torn, expected - len(nodes)))


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _check_header(header: dict[str, Any]) -> None:
    schema = header.get("schema")
    if not isinstance(schema, str) or schema != SCHEMA:
        raise ValueError(f"the schema is not {SCHEMA}")
    if not isinstance(header.get("id"), str) or not _ID.match(header["id"]):
        raise ValueError("the id is not a name")
    try:
        at = parse_utc(header["at"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise ValueError("`at` is not a time in UTC") from None
    if not 0 <= at < 32_503_680_000:
        raise ValueError("`at` is out of range")
    if header.get("verdict") not in VERDICTS:
        raise ValueError(f"the verdict is none of {', '.join(VERDICTS)}")
    for key in _SHORT:
        value = header.get(key)
        if value is not None and (not isinstance(value, str) or len(value) > 400):
            raise ValueError(f"{key} is no short text")
    if not isinstance(header.get("nodes", 0), int) or isinstance(header.get("nodes", 0), bool):
        raise ValueError("nodes is no number")
    for key in ("confused", "unavailable", "links", "exclude"):
        if not isinstance(header.get(key, []), list):
            raise ValueError(f"{key} is no list")


def node_fault(node: dict[str, Any]) -> str | None:
    """Return what is wrong with the line of a node, None when nothing is."""
    name, results = node.get("node"), node.get("results", [])
    if not isinstance(name, str) or not NODE_NAME.match(name):
        return "node is not the name of a node"
    if node.get("verdict") not in ("healthy", "suspect", "bad", "unknown"):
        return f"the verdict of {name} is none of healthy, suspect, bad, unknown"
    if not isinstance(results, list) or not all(_is_result(result) for result in results):
        return f"the results of {name} are no list of results"
    pairs = node.get("pairs", [])
    if not isinstance(pairs, list) or not all(isinstance(pair, dict) for pair in pairs):
        return f"the pairs of {name} are no list"
    return None


def _is_result(result: Any) -> bool:
    if not isinstance(result, dict) or not isinstance(result.get("check"), str):
        return False
    value, rule = result.get("value"), result.get("rule")
    number = value is None or (isinstance(value, (int, float)) and math.isfinite(value))
    return result.get("status") in ("pass", "warn", "fail", "unknown", "skip") and number and _is_rule(rule)


def _is_rule(rule: Any) -> bool:
    return rule is None or (isinstance(rule, dict) and all(isinstance(value, str) for value in rule.values()))
