"""host.commands: the commands that the job needs are on the ranks' PATH."""

from __future__ import annotations

import os
import shutil
from typing import Any, Mapping

from cordee.node.checks._base import Check, Result


class CommandsCheck(Check):
    """Parameters: `commands`."""

    def run(self, parameters: Mapping[str, Any], request: Mapping[str, Any]) -> Result:
        """Look each command up as the ranks would."""
        commands = parameters["commands"]
        path = request.get("env", {}).get("PATH", os.defpath)
        missing = [command for command in commands if shutil.which(command, path=path) is None]
        count = float(len(commands) - len(missing))
        if missing:
            return Result("fail", f"not on PATH: {', '.join(missing)}", count, "commands", float(len(commands)))
        return Result("pass", f"found: {', '.join(commands)}", count, "commands", float(len(commands)))
