"""Checks of a node before ranks start on it: one small module each, behind one lazy table.

A check that could not run is `unknown`, never a pass.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any, Iterator, Mapping

from cordee.errors import UsageError
from cordee.node.checks._base import Check, Result, unknown

CHECKS = {
    "host.memory": "cordee.node.checks.memory:MemoryCheck",
    "host.disk": "cordee.node.checks.disk:DiskCheck",
    "host.load": "cordee.node.checks.load:LoadCheck",
    "host.commands": "cordee.node.checks.commands:CommandsCheck",
    "host.modules": "cordee.node.checks.modules:ModulesCheck",
}


def check_named(name: str) -> Check:
    """Return a check.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in CHECKS:
        raise UsageError(f"there is no check {name!r}", given=name, allowed=sorted(CHECKS))
    module, _, kind = CHECKS[name].partition(":")
    check: Check = getattr(import_module(module), kind)()
    return check


def checks_for(vet: Mapping[str, Any], run_folder: str, python: str, env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return what `run_checks` shall do for the `vet` part of a plan.

    Args:
        vet: of plan.json.
        run_folder: must be writable and have space.
        python: the ranks' command, used for modules when it is a Python.
        env: variables that the checks see on top of the ranks' own.
    """
    wanted: list[dict[str, Any]] = [
        {"check": "host.memory", "parameters": {"min_bytes": vet["min_memory_bytes"]}},
        {"check": "host.disk", "parameters": {"min_bytes": vet["min_disk_bytes"], "folders": [run_folder]}},
        {"check": "host.load", "parameters": {"max_ratio": vet["max_load_ratio"]}},
    ]
    if vet["commands"]:
        wanted.append({"check": "host.commands", "parameters": {"commands": list(vet["commands"])}})
    if vet["modules"]:
        name = python if python.rpartition("/")[2].startswith("python") else "python"
        parameters = {"modules": list(vet["modules"]), "python": name, "deadline_s": vet["deadline_s"]}
        wanted.append({"check": "host.modules", "parameters": parameters})
    return [dict(request, env=dict(env)) for request in wanted] if env else wanted


def run_checks(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one result document per check, in order.

    Args:
        request: `{"checks": [{"check", "parameters"}], "env": {...}, "workdir": ...}`.

    Raises:
        UsageError: a check does not exist; nothing has run then.
    """
    wanted = [(entry["check"], check_named(entry["check"]), entry.get("parameters", {})) for entry in request["checks"]]
    for name, check, parameters in wanted:
        started = time.monotonic()
        try:
            result = check.run(parameters, request)
        except Exception as error:  # a broken check says nothing about the node
            result = unknown(f"the check itself failed: {type(error).__name__}: {error}")
        yield dict(result.document(), check=name, version=check.version, seconds=round(time.monotonic() - started, 4))


def verdict(results: list[dict[str, Any]]) -> str:
    """Return healthy, suspect, bad or unknown for a node: a failure makes it bad, a missing answer unknown."""
    statuses = {result["status"] for result in results}
    if "fail" in statuses:
        return "bad"
    if "unknown" in statuses or not results:
        return "unknown"
    return "suspect" if "warn" in statuses else "healthy"


__all__ = ["CHECKS", "Check", "Result", "check_named", "checks_for", "run_checks", "verdict"]
