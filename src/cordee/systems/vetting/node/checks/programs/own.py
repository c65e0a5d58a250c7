"""Runs one class of the user's."""

from __future__ import annotations

import os
import sys
from typing import Any

from cordee.core.errors import UsageError
from cordee.machine.probes.common import Obstacle, Say, serve
from cordee.systems.vetting.node.checks import CannotTest, Check, Context, load_check


def main() -> None:
    """Answer one request: `name`, `place`, `parameters`, `context`."""
    serve(run)


def run(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return the result's document."""
    name, place = request["name"], request["place"]
    say({"begin": f"loading {place}"})
    path = place.rpartition(":")[0]
    if path.endswith(".py"):
        sys.path.insert(0, os.path.dirname(path))  # what lies beside it may be imported
    try:
        check = load_check(name, {name: place})
    except UsageError as error:
        raise Obstacle(error.text, "error") from None
    if not isinstance(check, Check):
        raise Obstacle(f"{place} is no cordee.checks.Check", "error")
    given = request["parameters"]
    unknown = sorted(set(given) - {parameter.name for parameter in check.parameters})
    if unknown:
        raise Obstacle(f"{name} does not take {', '.join(unknown)}", "error")
    say({"begin": f"running {place}"})
    try:
        result = check.run({**check.defaults(), **given}, Context(**request["context"]))
    except CannotTest as obstacle:
        raise Obstacle(str(obstacle), obstacle.cause) from None
    except Exception as error:
        raise Obstacle(f"the check broke: {type(error).__name__}: {error}", "error") from None
    result.check = name
    return result.document()
