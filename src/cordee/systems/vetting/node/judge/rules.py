"""Which rule of the catalogue a result falls under. Rules are data: nothing of them is evaluated as code."""

from __future__ import annotations

from typing import Any, Optional

from cordee.core.rules import any_glob, any_pattern, several


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
        if key in when and result.get(key) not in several(when[key]):
            return False
    if "check" in when and not any_glob(result.get("check") or "", several(when["check"])):
        return False
    if "xid" in when and not _any_xid(result.get("facts"), several(when["xid"])):
        return False
    if "pattern" not in when:
        return True
    return any_pattern(result.get("evidence") or "", when["pattern"])


def _any_xid(facts: Any, wanted: Any) -> bool:
    logged = facts.get("xids") if isinstance(facts, dict) else None
    return isinstance(logged, list) and any(xid in logged for xid in wanted)
