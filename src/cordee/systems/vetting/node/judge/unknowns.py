"""What could not be tested: on one node it is the node's, on many alike it is the site's or the check's."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

_VARYING = re.compile(r"GPU-[0-9a-f-]+|0x[0-9a-f]+|[0-9a-f]{8,}|\d+(?:\.\d+)?", re.IGNORECASE)
_WORD = re.compile(r"[\w-]+")
_LONGEST_REASON = 200
RAN = frozenset(["pass", "warn", "fail"])
BUSY = "busy"
# Causes that are not held against a node: the site does not let us look, or the host was busy when we did.
_EXCUSED = ("closed", BUSY)
_LOAD = "host.load"


def busy_nodes(sheets: Mapping[str, Any]) -> frozenset[str]:
    """Return the nodes whose own `host.load` says that something else uses them; without that check nobody knows."""
    return frozenset(
        node
        for node, results in sheets.items()
        if any(result["check"] == _LOAD and result["status"] in ("unknown", "warn", "fail") for result in results or ())
    )


def is_only_busy(results: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all that is off on a node is unknown because its host was busy."""
    off = [result for result in results if result["status"] not in ("pass", "skip")]
    return bool(off) and all(result["status"] == "unknown" and result.get("cause") == BUSY for result in off)


def find_unavailable(sheets: dict[str, list[dict[str, Any]]], confusion_ratio: float) -> list[dict[str, Any]]:
    """Find the checks that are unknown for one reason on more than `confusion_ratio` of the nodes, at least two.

    On an allocation of one node, a check that is closed to us counts, if a required one did run. The results concerned
    get `unavailable`: `verdict` leaves their node in when the cause is `closed`.

    Args:
        sheets: the results of every node that answered.
        confusion_ratio: see above.

    Returns:
        `{"check", "cause", "reason", "nodes", "abort"}` for each; `abort`: it is required and there is another cause than
        that the site does not let us look or that hosts were busy, so that no node could be called healthy.
    """
    groups: dict[tuple[str, str, str], list[tuple[str, dict[str, Any]]]] = {}
    for node, results in sheets.items():
        for result in results:
            if result["status"] == "unknown" and result.get("cause") != "silent":
                key = (str(result.get("name") or result["check"]), str(result.get("cause")), _reason(result, node))
                groups.setdefault(key, []).append((node, result))
    found = []
    for (name, cause, _), members in groups.items():
        shared = len(members) >= 2 and len(members) > confusion_ratio * len(sheets)
        if not shared and not (len(sheets) == 1 and cause == "closed" and required_ran(sheets[members[0][0]])):
            continue
        for _, result in members:
            result["unavailable"] = True
        required = any(result.get("required", True) for _, result in members)
        found.append(
            {
                "check": name,
                "cause": cause,
                "reason": str(members[0][1].get("evidence") or ""),
                "nodes": [node for node, _ in members],
                "abort": required and cause not in _EXCUSED,
            }
        )
    return found


def is_silent(results: Any) -> bool:
    """Return whether a node never answered: it has no report, or nothing in it but silence."""
    return results is None or (
        bool(results) and all(one["status"] == "unknown" and one.get("cause") == "silent" for one in results)
    )


def required_ran(results: list[dict[str, Any]]) -> bool:
    """Return whether a required check really ran."""
    return any(result["status"] in RAN and result.get("required", True) for result in results)


def _reason(result: dict[str, Any], node: str) -> str:
    """Return the evidence without what differs between nodes that suffer the same: names, numbers, stacks."""
    text = str(result.get("evidence") or "").partition(";")[0].partition("\n")[0]
    if node and node in text:
        text = _WORD.sub(lambda word: "NODE" if word.group() == node else word.group(), text)
    return _VARYING.sub("#", text)[:_LONGEST_REASON]
