"""Are the commands there that the job needs?"""

from __future__ import annotations

from typing import Any

from cordee.systems.vetting.node.checks._base import Check, Context, Parameter, Result
from cordee.systems.vetting.node.checks.inside import find


class CommandsCheck(Check):
    """Looks up `commands` on the PATH of the ranks' environment; one with a slash is relative to their folder.

    With a container, what counts is what it holds.
    """

    name = "host.commands"
    title = "Are the commands there that the job needs?"
    scope = "user"
    parameters = (
        Parameter("commands", "texts", "the commands", needed=True),
        Parameter("env", "map", "variables on top of the ranks' environment"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        env = {**context.env, **(parameters.get("env") or {})}
        found, faults = [], []
        names = parameters["commands"]
        for name, (path, reason) in zip(names, find(names, context, env)):
            if path is None:
                faults.append(f"{name} {reason}")
            else:
                found.append(path)
        evidence = "; ".join(faults or found)
        return self.result("fail" if faults else "pass", evidence, value=len(faults), unit="missing", threshold=0)
