"""Checks of a node before ranks start on it, and the verdict that follows from their results."""

from __future__ import annotations

from typing import Any, Optional

from cordee.errors import UsageError
from cordee.node.checks._base import Check, Context, Result

CHECKS = {
    "host.memory": "cordee.node.checks.memory:MemoryCheck",
    "host.disk": "cordee.node.checks.disk:DiskCheck",
    "host.load": "cordee.node.checks.load:LoadCheck",
    "host.commands": "cordee.node.checks.commands:CommandsCheck",
    "host.modules": "cordee.node.checks.modules:ModulesCheck",
}

__all__ = ["CHECKS", "Check", "Context", "Result", "checks_for", "load_check", "run_checks", "verdict"]


def load_check(name: str) -> Check:
    """Return the check of this name.

    Raises:
        UsageError: there is none; says the nearest name.
    """
    if name not in CHECKS:
        import difflib

        near = difflib.get_close_matches(str(name), CHECKS, 1)
        raise UsageError(
            "there is no check of this name",
            given=name,
            allowed=sorted(CHECKS),
            next=f"did you mean {near[0]}?" if near else "choose one of these",
        )
    import importlib

    module, _, attribute = CHECKS[name].partition(":")
    check: Check = getattr(importlib.import_module(module), attribute)()
    return check


def run_checks(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Run all checks of a request side by side and return one result document for each, in the order of the request.

    Args:
        request: `checks` (each with `check`, and perhaps `parameters` and `required`), `deadline_s` for all of them,
            and perhaps `env`, `workdir` and `run_folder` of the ranks.

    Raises:
        UsageError: the request is wrong (a mistyped check or parameter); nothing was run.
    """
    from cordee.node.checks.running import run

    return run(request)


def checks_for(
    vet: dict[str, Any], run_folder: str, python_argv0: str, env: Optional[dict[str, str]] = None
) -> list[dict[str, Any]]:
    """Return the checks that the `vet` table of a plan asks for.

    Args:
        vet: the table.
        run_folder: the run's folder: the ranks must be able to write there.
        python_argv0: first word of the ranks' command; tells which Python must have the modules.
        env: variables on top of the environment that the request gives.
    """
    extra = {"env": env} if env else {}
    wanted: list[dict[str, Any]] = [
        {"check": "host.memory", "parameters": {"min_bytes": vet["min_memory_bytes"]}},
        {"check": "host.disk", "parameters": {"run_folder": run_folder, "min_bytes": vet["min_disk_bytes"], **extra}},
        {"check": "host.load", "parameters": {"max_ratio": vet["max_load_ratio"]}},
    ]
    if vet["commands"]:
        wanted.append({"check": "host.commands", "parameters": {"commands": vet["commands"], **extra}})
    if vet["modules"]:
        modules = {"modules": vet["modules"], "python": python_argv0, **extra}
        wanted.append({"check": "host.modules", "parameters": modules})
    return wanted


def verdict(results: list[dict[str, Any]]) -> str:
    """Return what the results say of the node: `bad`, `unknown`, `suspect` or `healthy`.

    A required check that failed makes it bad; one that could not be tested, or no result at all, unknown; a warning, or
    the same of a check that is not required, suspect.
    """
    if not results:
        return "unknown"
    required = {result["status"] for result in results if result.get("required", True)}
    every = {result["status"] for result in results}
    if "fail" in required:
        return "bad"
    if "unknown" in required or not every <= {"pass", "warn", "fail", "unknown", "skip"}:
        return "unknown"
    return "suspect" if every & {"warn", "fail", "unknown"} else "healthy"
