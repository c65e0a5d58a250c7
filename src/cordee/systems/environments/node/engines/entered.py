"""Environments that their processes are in already: whoever started the job had it begin in the image."""

from __future__ import annotations

import json

from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import (
    CONTAINER_SCHEMA,
    Engine,
    EngineError,
    EngineLaunch,
    MissingCapability,
)

NAME = "scheduler"
# `enter_argv` has `--workdir PATH --` before the command. An image has a shell where Cordée got as far as this.
_ENTER = ["/bin/sh", "-c", 'cd "$2" && shift 3 && exec "$@"', "sh"]


class EnteredEngine(Engine):
    """Runs commands as they are."""

    name = NAME

    def missing(self, environment: Environment) -> list[MissingCapability]:
        """Return nothing: who is inside lacks nothing to get there."""
        return []

    def argv(self, environment: Environment, launch: EngineLaunch) -> list[str]:
        """Refuse: there is no way in from outside."""
        raise EngineError("only jobs are in an environment already", given=NAME)

    def hold(self, environment: Environment) -> list[str]:
        """Return a process that says so, and ends with its standard input."""
        answer = json.dumps({"schema": CONTAINER_SCHEMA, "enter": _ENTER})
        return ["/bin/sh", "-c", 'echo "$1" && exec cat', "sh", answer]
