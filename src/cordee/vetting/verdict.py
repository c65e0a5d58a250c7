"""From results to verdicts: of one node, and of the allocation. Pure functions."""

from __future__ import annotations

from typing import Any


def verdict(results: list[dict[str, Any]]) -> str:
    """Return what the results say of the node: `bad`, `unknown`, `suspect` or `healthy`.

    A required check that failed makes it bad; one that could not be tested, or no result at all, unknown; a warning, or
    the same of a check that is not required, suspect.
    """
    if not results:
        return "unknown"
    required = {result["status"] for result in results if result.get("required", True)}
    every = {result["status"] for result in results}
    if "fail" in required:
        return "bad"
    if "unknown" in required or not every <= {"pass", "warn", "fail", "unknown", "skip"}:
        return "unknown"
    return "suspect" if every & {"warn", "fail", "unknown"} else "healthy"
