"""A vetting as the history keeps it: a header line, then one line for each node. Pure functions."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from typing import Any, Optional

from cordee.core.units import parse_utc, utc_text

SCHEMA = "cordee.history/1"
_EVIDENCE = 400
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")
_RULE_KEYS = ("id", "kind", "scope", "action")
_DEVICE_KEYS = ("device", "uuid", "name", "model")


def lines_of(document: dict[str, Any], user: str = "name") -> list[dict[str, Any]]:
    """Return the lines of a vetting's file, the header first.

    Args:
        document: an allocation document, `cordee.vetting/1`.
        user: how the user is kept: by `name`, as a `hash` of it (the same person is the same hash on one cluster; who
            knows the names can still tell), or as `none`.
    """
    return [_header(document, user), *(_node_line(node, document) for node in document.get("nodes", []))]


def file_name(header: dict[str, Any]) -> str:
    """Return the name of a vetting's file: time, job and id, from which nothing can lead out of its folder."""
    at = re.sub(r"[-:.]", "", str(header["at"]))
    job = safe(str(header.get("job") or "alone"))[:60].lstrip(".-") or "alone"
    return f"{safe(at)[:24]}-{job}-{safe(str(header['id']))[:40]}.jsonl"


def safe(text: str) -> str:
    """Return a text as a part of a file's name."""
    return _UNSAFE.sub("_", text)


def day(header: dict[str, Any]) -> str:
    """Return the UTC day of a vetting, which is the name of its folder: `2026-11-21`."""
    return utc_text(parse_utc(str(header["at"])))[:10]


def encode(lines: list[dict[str, Any]]) -> bytes:
    """Return the lines as JSON lines."""
    return "".join(json.dumps(line, separators=(",", ":"), default=str) + "\n" for line in lines).encode()


def _header(document: dict[str, Any], user: str) -> dict[str, Any]:
    name = document.get("user") or os.environ.get("USER") or str(os.geteuid())
    return {
        "schema": SCHEMA,
        "id": str(document.get("id") or secrets.token_hex(8)),
        "at": _time(document.get("at")),
        "cluster": document.get("cluster"),
        "job": _text(document.get("job")),
        "run": document.get("run"),
        "user": _user(str(name), str(document.get("cluster")), user),
        "protocol": document.get("protocol"),
        "digest": document.get("digest"),
        "seconds": document.get("seconds"),
        "verdict": document.get("verdict"),
        "reason": document.get("reason"),
        "exclude": document.get("exclude", []),
        "unavailable": document.get("unavailable", []),
        "confused": document.get("confused", []),
        "links": document.get("links", []),
        "nodes": len(document.get("nodes", [])),
    }


def _user(name: str, cluster: str, kept: str) -> Optional[str]:
    if kept == "name":
        return name
    if kept == "hash":
        return "user-" + hashlib.sha256(f"{cluster}\0{name}".encode()).hexdigest()[:12]
    return None


def _time(at: Any) -> str:
    return str(at) if at and not isinstance(at, (int, float)) else utc_text(at)


def _text(value: Any) -> Optional[str]:
    return None if value is None else str(value)


def _node_line(node: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    name = node["node"]
    pairs = []
    for pair in document.get("pairs") or []:
        if name in pair.get("nodes", ()):
            partner = next((other for other in pair["nodes"] if other != name), None)
            pairs.append({"node": partner, "bytes_per_s": pair.get("bytes_per_s"), "round": pair.get("round")})
    return {
        "node": name,
        "verdict": node.get("verdict"),
        "results": [_result(result) for result in node.get("results", [])],
        "pairs": pairs,
    }


def _result(result: dict[str, Any]) -> dict[str, Any]:
    kept = {"check": result.get("check"), "status": result.get("status")}
    for key in ("value", "unit", "threshold", "cause", "reference", "seconds", "version"):
        if result.get(key) is not None:
            kept[key] = result[key]
    if result.get("name") not in (None, "", result.get("check")):
        kept["name"] = result["name"]
    if not result.get("required", True):
        kept["required"] = False
    if any(each.get("kind") == "low" and each.get("of", "value") == "value" for each in result.get("compare") or []):
        kept["low"] = True
    facts = result.get("facts") or {}
    devices = [_only(device, _DEVICE_KEYS) for device in _dicts(facts)]
    model = facts.get("model") or next((d.get("model") or d.get("name") for d in devices if "uuid" in d), None)
    if model:
        kept["model"] = str(model)
    if result.get("status") in ("pass", "skip"):
        return kept
    kept["evidence"] = str(result.get("evidence") or "")[:_EVIDENCE]
    faulty = [{**_only(device, _DEVICE_KEYS), "fault": True} for device in _dicts(facts) if _is_faulty(device)]
    if faulty or devices:
        kept["devices"] = faulty or devices
    if facts.get("xids"):
        kept["xids"] = facts["xids"]
    rule = result.get("rule")
    if isinstance(rule, dict):
        kept["rule"] = _only(rule, _RULE_KEYS)
    return kept


def _dicts(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [device for device in facts.get("devices") or [] if isinstance(device, dict)]


def _is_faulty(device: dict[str, Any]) -> bool:
    """Return whether a check has named a device as the one that is off, or as one that computed wrongly."""
    return any(device.get(key) for key in ("fault", "lost", "wrong"))


def _only(document: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: document[key] for key in keys if document.get(key) is not None}
