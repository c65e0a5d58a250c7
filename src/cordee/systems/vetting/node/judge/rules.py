"""Which rule of the catalogue a result falls under. Rules are data: nothing of them is evaluated as code."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import Any, Optional, Pattern

_MOST_EVIDENCE = 8192


def match(rules: list[dict[str, Any]], result: dict[str, Any]) -> Optional[dict[str, Any]]:
    """Return the first rule whose `when` holds for the result, or None.

    Every condition of `when` that is given must hold, each for one value or any of a list: `check` (a name or a glob such
    as `gpu.*`), `status`, `cause`, `xid` (one of the numbers in the result's `facts["xids"]`), `pattern` (a regular
    expression searched in the evidence, of which the first 8,192 characters count). A `when` without conditions holds for
    no result.

    Args:
        rules: as the resolved protocol holds them, in the order in which they count.
        result: the document of a result. That of a node which never answered has the check `node.answer` and the cause
            `silent`.
    """
    for rule in rules:
        if _holds(rule.get("when") or {}, result):
            return rule
    return None


def _holds(when: dict[str, Any], result: dict[str, Any]) -> bool:
    if not when:
        return False
    for key in ("status", "cause"):
        if key in when and result.get(key) not in _several(when[key]):
            return False
    if "check" in when and not _any_glob(result.get("check") or "", _several(when["check"])):
        return False
    if "xid" in when and not _any_xid(result.get("facts"), _several(when["xid"])):
        return False
    if "pattern" not in when:
        return True
    evidence = (result.get("evidence") or "")[:_MOST_EVIDENCE]
    return any(_compiled(pattern).search(evidence) for pattern in _several(when["pattern"]))


def _several(given: Any) -> Any:
    return given if isinstance(given, (list, tuple)) else (given,)


def _any_glob(name: str, globs: Any) -> bool:
    return any(name == glob or fnmatch.fnmatchcase(name, glob) for glob in globs)


def _any_xid(facts: Any, wanted: Any) -> bool:
    logged = facts.get("xids") if isinstance(facts, dict) else None
    return isinstance(logged, list) and any(xid in logged for xid in wanted)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Pattern[str]:
    return re.compile(pattern)
