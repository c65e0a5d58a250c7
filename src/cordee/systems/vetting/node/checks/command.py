"""Runs a command of the user's and takes its exit code, or the JSON line that it prints, as the result."""

from __future__ import annotations

import os
import shlex
import signal
from dataclasses import asdict, replace
from typing import Any, Optional

from cordee.machine.foreign_files import parse_json
from cordee.systems.vetting.node.checks._base import (
    CAUSES,
    STATUSES,
    CannotTest,
    Check,
    Comparison,
    Context,
    Parameter,
    Result,
)
from cordee.systems.vetting.node.checks.child import CheckChild
from cordee.systems.vetting.node.checks.inside import command_line, find
from cordee.systems.vetting.node.checks.program import require
from cordee.systems.vetting.node.checks.stuck import doing

_CODES = {"0": "pass", "1": "fail", "2": "warn", "3": "unknown"}
# What a shell ends with when a command is there but cannot be run, or is not there.
_NOT_RUN = (126, 127)
_TAIL_BYTES = 2000
_TAIL_LINES = 5
_MARGIN_S = 0.5


class CommandCheck(Check):
    """Runs `command` in the ranks' environment and folder, without a shell; what the protocol requires is first on PATH.

    Exit codes mean pass (0), fail (1), warn (2), unknown (3) unless `codes` says otherwise; all others fail. When the last line on standard
    output is a JSON object with a `status`, that is the result: `{"status", "value", "unit", "evidence", "facts", "cause"}`.
    """

    name = "command"
    title = "What does a command of yours say about the node?"
    deadline_s = 60.0
    parameters = (
        Parameter("command", "any", "a list of words, or text that is split as a shell would", needed=True),
        Parameter("env", "map", "variables on top of the ranks' environment; null removes one"),
        Parameter("timeout", "duration", "longest run; it is killed then, with all that it started", unit="s"),
        Parameter("codes", "map", 'status of each exit code, such as {"4": warn}, on top of the usual'),
        Parameter("unit", "text", "unit of the value"),
        Parameter("min", "number", "a lower value fails"),
        Parameter("max", "number", "a higher value fails"),
        Parameter("min_ratio", "ratio", "least share of the peers' 75th percentile of the value"),
        Parameter("margin", "number", "most that the value may be above the peers' median"),
        Parameter("same", "texts", "keys of the facts, or `value`, that must be the same on all nodes"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        argv = _words(parameters["command"])
        require(context)
        env = _environment(with_python(context), parameters.get("env") or {})
        context = replace(context, inside=()) if context.python else context
        path, reason = find([argv[0]], context, env)[0]
        if path is None:
            raise CannotTest(f"{argv[0]} {reason}", "absent")
        limit = min(parameters.get("timeout") or context.deadline_s, max(0.1, context.deadline_s - _MARGIN_S))
        code, output, errors, stack = _run([path, *argv[1:]], env, context, limit)
        if code is None:
            text = f"{argv[0]} did not end within {limit:.3g} s and was killed{_tail(output, errors)}"
            return self.result("unknown", f"{text}; {stack[-1]}", cause="timeout", facts={"stack": stack})
        said = _said(output)
        result = (
            self._from_words(said, code)
            if said is not None
            else self._from_code(argv[0], code, parameters, output, errors)
        )
        return _judged(result, parameters)

    def _from_code(self, name: str, code: int, parameters: dict[str, Any], output: bytes, errors: bytes) -> Result:
        if code < 0:
            text = f"{name} was ended by {signal.Signals(-code).name}{_tail(output, errors)}"
            return self.result("fail", text, facts={"exit_code": code})
        codes = {**_CODES, **{str(key): value for key, value in (parameters.get("codes") or {}).items()}}
        text = f"{name} ended with {code}{_tail(output, errors)}"
        if code in _NOT_RUN and str(code) not in codes:
            return self.result("unknown", text, cause="absent", facts={"exit_code": code})
        status = codes.get(str(code), "fail")
        if status not in STATUSES:
            raise CannotTest(f"`codes` maps {code} to {status!r}; allowed: {', '.join(STATUSES)}", "error")
        cause = "error" if status == "unknown" else None
        return self.result(status, text, cause=cause, facts={"exit_code": code})

    def _from_words(self, said: dict[str, Any], code: int) -> Result:
        status, value = said["status"], said.get("value")
        if status not in STATUSES:
            raise CannotTest(f"it says the status {status!r}; allowed: {', '.join(STATUSES)}", "error")
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise CannotTest(f"it says the value {value!r}, which is no number", "error")
        if code != 0 and status in ("pass", "skip"):
            raise CannotTest(f"it says {status} but ends with {code}", "error")
        facts = said.get("facts")
        result = self.result(
            status, str(said.get("evidence") or f"it says {status}"), value=value, unit=said.get("unit")
        )
        result.facts = {**(facts if isinstance(facts, dict) else {}), "exit_code": code}
        cause = said.get("cause")
        if status == "unknown":
            result.cause = cause if cause in CAUSES else "error"
        return result


def _judged(result: Result, parameters: dict[str, Any]) -> Result:
    """Hold a value against the limits that were given, and ask for the comparisons."""
    result.unit = parameters.get("unit") or result.unit
    limits = [parameters.get(name) for name in ("min", "max", "min_ratio", "margin")]
    if result.status not in ("pass", "warn"):
        return result
    if result.value is None and any(limit is not None for limit in limits):
        raise CannotTest("a limit is given for its value, but it prints no JSON line with one", "error")
    least, most, ratio, margin = limits
    for limit, off in ((least, "below"), (most, "above")):
        if limit is None or result.value is None:
            continue
        result.threshold, result.reference = limit, {"kind": "absolute", "value": limit, "n": None}
        if result.value < limit if off == "below" else result.value > limit:
            result.status = "fail"
            result.evidence += f"; {result.value:g} is {off} {limit:g}"
            return result
    if ratio is not None:
        result.compare.append(asdict(Comparison("low", ratio=ratio)))
    if margin is not None:
        result.compare.append(asdict(Comparison("high", margin=margin)))
    result.compare += [asdict(Comparison("same", of=key)) for key in parameters.get("same") or []]
    return result


def _words(command: Any) -> list[str]:
    try:
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    except (ValueError, TypeError) as error:
        raise CannotTest(f"the command {command!r} cannot be read: {error}", "error") from None
    if not words or not words[0]:
        raise CannotTest("the command is empty", "error")
    return words


def with_python(context: Context) -> dict[str, str]:
    """Return the ranks' environment with the prepared interpreter, if there is one, in front of PATH."""
    if not context.python:
        return context.env
    path = [os.path.dirname(context.python), *([context.env["PATH"]] if context.env.get("PATH") else [])]
    return {**context.env, "PATH": os.pathsep.join(path)}


def _environment(env: dict[str, str], more: dict[str, Optional[str]]) -> dict[str, str]:
    merged = {**env, **{name: str(value) for name, value in more.items() if value is not None}}
    return {name: value for name, value in merged.items() if name not in more or more[name] is not None}


def _run(
    argv: list[str], env: dict[str, str], context: Context, limit_s: float
) -> tuple[Optional[int], bytes, bytes, list[str]]:
    """Return the exit code (None: killed by us), the ends of what it wrote, and what it was doing when it was killed."""
    try:
        words, folder = command_line(argv, context)
        child = CheckChild(words, env, folder)
    except OSError as error:
        raise CannotTest(f"{argv[0]} cannot be started: {error.strerror}", "error") from None
    try:
        stack = [] if child.wait(limit_s) else doing(child.pid)
        return child.code, child.output, child.errors, stack
    finally:
        child.close()


def _said(output: bytes) -> Optional[dict[str, Any]]:
    lines = output.strip().splitlines()
    try:
        said = parse_json(lines[-1]) if lines else None
    except ValueError:
        return None
    return said if isinstance(said, dict) and "status" in said else None


def _tail(output: bytes, errors: bytes) -> str:
    """Return the last lines of standard error, or of standard output where there are none."""
    text = (errors.strip() or output.strip())[-_TAIL_BYTES:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()][-_TAIL_LINES:]
    return f": {' | '.join(lines)}" if lines else ""
