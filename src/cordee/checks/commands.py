"""Are the commands there that the job needs?"""

from __future__ import annotations

from typing import Any

from cordee.checks._base import Check, Context, Parameter, Result, find_command


class CommandsCheck(Check):
    """Looks up `commands` on the PATH of the ranks' environment; one with a slash is relative to their folder."""

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
        for name in parameters["commands"]:
            path, reason = find_command(name, env, context.workdir)
            if path is None:
                faults.append(f"{name} {reason}")
            else:
                found.append(path)
        evidence = "; ".join(faults or found)
        return self.result("fail" if faults else "pass", evidence, value=len(faults), unit="missing", threshold=0)
