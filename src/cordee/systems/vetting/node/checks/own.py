"""A check of the user's: a class in a file, loaded and run in the ranks' interpreter and nowhere else."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from cordee.systems.vetting.node.checks._base import CAUSES, STATUSES, CannotTest, Check, Context, Result
from cordee.systems.vetting.node.checks.program import require, run_program


class OwnCheck(Check):
    """Runs a class of the user's in a process and an interpreter of its own: what it imports, prints and breaks stays there.

    Nothing else of ours runs meanwhile, since the class may measure. What it declares is looked at when it runs.

    Args:
        name: what the class is called in the protocol.
        place: `/path/to/file.py:Class` or `package.module:Class`.
    """

    title = "What does a class of yours say about the node?"
    alone = True
    scope = "node"
    deadline_s = 60.0

    def __init__(self, name: str, place: str) -> None:
        self.name = name
        self._place = place

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        require(context)
        request = {
            "name": self.name,
            "place": self._place,
            "parameters": parameters,
            "context": asdict(replace(context, inside=())),
        }
        outcome = run_program("own", request, context)
        if outcome.done is None:
            facts: dict[str, Any] = {"stack": outcome.stack} if outcome.stack else {}
            return self.result(outcome.status, outcome.text, cause=outcome.cause, facts=facts)
        result = Result(**outcome.done)
        if result.status not in STATUSES:
            raise CannotTest(f"it says the status {result.status!r}; allowed: {', '.join(STATUSES)}", "error")
        if result.cause is not None and result.cause not in CAUSES:
            raise CannotTest(f"it says the cause {result.cause!r}; allowed: {', '.join(CAUSES)}", "error")
        return result
