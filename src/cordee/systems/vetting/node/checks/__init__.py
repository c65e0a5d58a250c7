"""Questions about a node, each asked in a process that can be killed."""

from __future__ import annotations

from typing import Any

from cordee.systems.vetting.node.checks._base import CannotTest, Check, Comparison, Context, Parameter, Result
from cordee.systems.vetting.node.checks.catalogue import CHECKS, load_check

__all__ = [
    "CHECKS",
    "CannotTest",
    "Check",
    "Comparison",
    "Context",
    "Parameter",
    "Result",
    "load_check",
    "run_checks",
    "unknown_result",
]


def run_checks(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Run all checks of a request side by side and return one result document for each, in the order of the request.

    Args:
        request: `checks` (each with `check`, and perhaps `parameters` and `required`), `deadline_s` for all of them,
            and perhaps `env`, `workdir` and `run_folder` of the ranks, and `asked_at`, the monotonic time at which it was
            asked: the deadline counts from then, however long it took until the checks could begin.

    Raises:
        UsageError: the request is wrong (a mistyped check or parameter); nothing was run.
    """
    from cordee.systems.vetting.node.checks.check_processes import run

    return run(request)


def unknown_result(entry: dict[str, Any], evidence: str, cause: str) -> dict[str, Any]:
    """Return the result of a check that did not come to run, as a document.

    Args:
        entry: the check as in a request.
        evidence: why, for a person.
        cause: one of `cordee.systems.vetting.node.checks._base.CAUSES`.
    """
    result = Result(entry["check"], "unknown", evidence=evidence, cause=cause)
    result.name, result.required = entry.get("name") or entry["check"], bool(entry.get("required", True))
    return result.document()
