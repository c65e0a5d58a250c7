"""Does the ranks' environment hold the variables that it must, and the same on all nodes?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cordee.systems.vetting.node.checks._base import Check, Comparison, Context, Parameter, Result

_NOT_SET = "(not set)"


class EnvironmentCheck(Check):
    """Looks at the environment that the ranks get: `expected` variables, and those that must be the `same` on all nodes."""

    name = "host.environment"
    title = "Does the ranks' environment hold the variables that it must, and the same on all nodes?"
    scope = "user"
    parameters = (
        Parameter("expected", "map", "value of each variable; null: it must be set, to anything"),
        Parameter("same", "texts", "variables that must have one value on all nodes"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        expected, same = parameters.get("expected") or {}, parameters.get("same") or []
        faults = []
        for name, value in expected.items():
            found = context.env.get(name)
            if found is None:
                faults.append(f"{name} is not set")
            elif value is not None and found != str(value):
                faults.append(f"{name} is {found!r}, not {str(value)!r}")
        evidence = "; ".join(faults) or f"{len(expected)} variables as expected"
        result = self.result("fail" if faults else "pass", evidence, value=len(faults), unit="variables", threshold=0)
        result.facts = {f"env {name}": context.env.get(name, _NOT_SET) for name in same}
        result.compare = [asdict(Comparison("same", of=key)) for key in result.facts]
        return result
