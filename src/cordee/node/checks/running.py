"""Runs checks side by side, each in a process that can be killed: one that is stuck costs only its own result."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import Any, Callable, NoReturn, Optional

from cordee.errors import UsageError
from cordee.node.checks import load_check
from cordee.node.checks._base import Check, Context, Result

_DEFAULT_DEADLINE_S = 30.0
_CHECK_KEYS = {"check", "parameters", "required"}
_REQUEST_KEYS = {"checks", "deadline_s", "env", "workdir", "run_folder"}

Wanted = tuple[Check, dict[str, Any], bool]


def run(request: dict[str, Any], on_result: Optional[Callable[[dict[str, Any]], None]] = None) -> list[dict[str, Any]]:
    """Run all checks of a request and return their results in its order; `on_result` gets each as it ends.

    Raises:
        UsageError: the request is wrong; nothing was run.
    """
    wanted, context = _read(request)
    deadline = time.monotonic() + context.deadline_s
    running = {}
    results: dict[int, dict[str, Any]] = {}

    def done(index: int, result: Result) -> None:
        results[index] = result.document()
        if on_result is not None:
            on_result(results[index])

    for index, (check, parameters, required) in enumerate(wanted):
        running[index] = _Step(check, parameters, required, context)
    while running:
        left = deadline - time.monotonic()
        ready = select.select([step.pipe for step in running.values()], [], [], max(0.0, left))[0]
        for index, step in list(running.items()):
            if step.pipe in ready:
                result = step.read()
            elif left <= 0:
                result = step.unknown(f"did not end within {context.deadline_s:g} s and was killed")
            else:
                continue
            if result is not None:
                step.end()
                del running[index]
                done(index, result)
    return [results[index] for index in range(len(wanted))]


class _Step:
    """One check in its own process group; its result comes through a pipe."""

    def __init__(self, check: Check, parameters: dict[str, Any], required: bool, context: Context) -> None:
        self._check = check
        self._required = required
        self._started = time.monotonic()
        self._output = b""
        self.pipe, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _answer(writing, check, parameters, context)
        os.close(writing)

    def read(self) -> Optional[Result]:
        """Take what has come; return the result when it is complete."""
        part = os.read(self.pipe, 65536)
        self._output += part
        if part:
            return None
        try:
            document = json.loads(self._output)
        except ValueError:
            return self.unknown(self._death())
        result = Result(**document)
        result.seconds, result.required = self._seconds(), self._required
        return result

    def unknown(self, reason: str) -> Result:
        """Return that the check could not be run."""
        result = self._check.result("unknown", reason, seconds=self._seconds())
        result.required = self._required
        return result

    def end(self) -> None:
        """Kill whatever is left of it, without waiting for what the kernel holds."""
        os.close(self.pipe)
        for kill in (os.killpg, os.kill):
            try:
                kill(self._pid, signal.SIGKILL)
            except OSError:
                continue
        self._reap(0.2)

    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 4)

    def _death(self) -> str:
        status = self._reap(1.0)
        if status is not None and os.WIFSIGNALED(status):
            return f"its process was killed by {signal.Signals(os.WTERMSIG(status)).name}"
        return "its process ended without a result"

    def _reap(self, patience_s: float) -> Optional[int]:
        until = time.monotonic() + patience_s
        while True:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid:
                return status
            if time.monotonic() > until:
                return None
            time.sleep(0.002)


def _answer(pipe: int, check: Check, parameters: dict[str, Any], context: Context) -> NoReturn:
    """Run the check in the child and write its result; never returns."""
    try:
        os.setpgid(0, 0)
        try:
            result = check.run(parameters, context)
        except Exception as error:
            result = check.result("unknown", f"the check broke: {type(error).__name__}: {error}")
        data = memoryview(json.dumps(result.document()).encode())
        while data:
            data = data[os.write(pipe, data) :]
    finally:
        os._exit(0)


def _read(request: dict[str, Any]) -> tuple[list[Wanted], Context]:
    """Check the whole request before anything runs."""
    if not isinstance(request, dict) or not isinstance(request.get("checks"), list):
        raise UsageError("a request is an object with a list `checks`", given=str(request)[:200])
    _refuse_unknown(request, _REQUEST_KEYS, "a request")
    wanted = []
    for entry in request["checks"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("check"), str):
            raise UsageError("each check is an object with a name `check`", given=str(entry)[:200])
        _refuse_unknown(entry, _CHECK_KEYS, "a check")
        check = load_check(entry["check"])
        parameters = entry.get("parameters") or {}
        _refuse_unknown(parameters, check.parameters, entry["check"])
        wanted.append((check, parameters, bool(entry.get("required", True))))
    deadline = request.get("deadline_s", _DEFAULT_DEADLINE_S)
    if not isinstance(deadline, (int, float)) or not 0 < deadline < 1e6:
        raise UsageError("deadline_s is a number of seconds", given=deadline, allowed="more than 0")
    context = Context(
        env=dict(request.get("env") or os.environ),
        workdir=request.get("workdir") or os.getcwd(),
        run_folder=request.get("run_folder"),
        deadline_s=float(deadline),
    )
    return wanted, context


def _refuse_unknown(given: Any, allowed: Any, where: str) -> None:
    unknown = sorted(set(given) - set(allowed)) if isinstance(given, dict) else [str(given)[:200]]
    if unknown:
        raise UsageError(f"{where} does not take this", given=", ".join(unknown), allowed=sorted(allowed))
