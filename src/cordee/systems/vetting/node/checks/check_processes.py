"""Runs checks, each in a process that can be killed: one that is stuck costs only its own result.

Those that measure speed run one after another, when all others have ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from dataclasses import replace
from typing import Any, Callable, NamedTuple, NoReturn, Optional

from cordee.core.errors import UsageError
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Context, Result
from cordee.systems.vetting.node.checks.catalogue import load_check
from cordee.systems.vetting.node.checks.own import OwnCheck
from cordee.systems.vetting.node.checks.stuck import listen, stack_of

_DEFAULT_DEADLINE_S = 30.0
_CHECK_KEYS = {"check", "name", "parameters", "required", "deadline_s"}
_REQUEST_KEYS = {
    "checks",
    "deadline_s",
    "asked_at",
    "env",
    "workdir",
    "run_folder",
    "node",
    "root",
    "python",
    "requirements",
    "classes",
    "inside",
}

OnResult = Callable[[dict[str, Any]], None]


class Wanted(NamedTuple):
    """One check of a request, with all its parameters and its own deadline in seconds."""

    check: Check
    name: str
    parameters: dict[str, Any]
    required: bool
    deadline_s: float


def run(request: dict[str, Any], on_result: Optional[OnResult] = None) -> list[dict[str, Any]]:
    """Run all checks of a request and return their results in its order; `on_result` gets each as it ends.

    Their deadline counts from `asked_at`, where the request has it: whoever waits for the answer does not know how long
    this process took to start.

    Raises:
        UsageError: the request is wrong; nothing was run.
    """
    wanted, context = _read(request)
    deadline = _asked_at(request.get("asked_at")) + context.deadline_s
    results: dict[int, dict[str, Any]] = {}

    def done(index: int, result: Result) -> None:
        results[index] = result.document()
        if on_result is not None:
            on_result(results[index])

    together = [index for index, entry in enumerate(wanted) if not entry.check.alone]
    _run_side_by_side({index: wanted[index] for index in together}, context, deadline, done)
    for index, entry in enumerate(wanted):
        if entry.check.alone:
            _run_side_by_side({index: entry}, context, deadline, done)
    return [results[index] for index in range(len(wanted))]


def _run_side_by_side(
    wanted: dict[int, Wanted], context: Context, deadline: float, done: Callable[[int, Result], None]
) -> None:
    running = {}
    for index, entry in wanted.items():
        if deadline <= time.monotonic():
            text = f"no time was left of the {context.deadline_s:g} s for all checks"
            done(index, _named(entry.check.result("unknown", text, cause="timeout"), entry))
        else:
            running[index] = _Step(entry, context, deadline)
    while running:
        now = time.monotonic()
        left = min(step.until for step in running.values()) - now
        ready = select.select([step.pipe for step in running.values()], [], [], max(0.0, left))[0]
        for index, step in list(running.items()):
            result = None
            if step.pipe in ready:
                result = step.read()
            elif step.until <= time.monotonic():
                result = step.late()
            if result is not None:
                step.end()
                del running[index]
                done(index, result)


class _Step:
    """One check in its own process group; its result comes through a pipe, its stack through another."""

    def __init__(self, wanted: Wanted, context: Context, deadline: float) -> None:
        self._wanted = wanted
        self._started = time.monotonic()
        self.until = min(deadline, self._started + wanted.deadline_s)
        self._output = b""
        context = replace(context, deadline_s=self.until - self._started)
        self.pipe, writing = os.pipe()
        self._stacks, stack_writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _answer(writing, stack_writing, wanted, context)
        os.close(writing)
        os.close(stack_writing)

    def read(self) -> Optional[Result]:
        """Take what has come; return the result when it is complete."""
        part = os.read(self.pipe, 65536)
        self._output += part
        if part:
            return None
        try:
            document = json.loads(self._output)
        except ValueError:
            return self._finish(self._wanted.check.result("unknown", self._death(), cause="error"))
        return self._finish(Result(**document))

    def late(self) -> Result:
        """Return that the check did not end in time, and what it was doing."""
        stack = stack_of(self._pid, self._stacks)
        text = f"did not end within {self.until - self._started:.3g} s and was killed"
        if stack:
            text += f"; it was at: {stack[0]}"
        return self._finish(self._wanted.check.result("unknown", text, cause="timeout", facts={"stack": stack}))

    def end(self) -> None:
        """Kill whatever is left of it, without waiting for what the kernel holds."""
        os.close(self.pipe)
        os.close(self._stacks)
        for kill in (os.killpg, os.kill):
            try:
                kill(self._pid, signal.SIGKILL)
            except OSError:
                continue
        self._reap(0.2)

    def _finish(self, result: Result) -> Result:
        result.seconds = round(time.monotonic() - self._started, 4)
        return _named(result, self._wanted)

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


def _named(result: Result, wanted: Wanted) -> Result:
    result.name, result.required = wanted.name, wanted.required
    if result.status == "unknown" and result.cause is None:
        result.cause = "error"
    return result


def _answer(pipe: int, stacks: int, wanted: Wanted, context: Context) -> NoReturn:
    """Run the check in the child and write its result; never returns."""
    check = wanted.check
    try:
        os.setpgid(0, 0)
        listen(stacks)
        try:
            result = check.run(wanted.parameters, context)
        except CannotTest as obstacle:
            result = check.result("unknown", str(obstacle), cause=obstacle.cause)
        except Exception as error:
            result = check.result("unknown", f"the check broke: {type(error).__name__}: {error}", cause="error")
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
    wanted = [_read_check(entry, request.get("classes") or {}) for entry in request["checks"]]
    deadline = _deadline(request.get("deadline_s", _DEFAULT_DEADLINE_S))
    context = Context(
        env=dict(request.get("env") or os.environ),
        workdir=request.get("workdir") or os.getcwd(),
        run_folder=request.get("run_folder"),
        deadline_s=deadline,
        node=request.get("node") or "",
        root=request.get("root") or os.environ.get("CORDEE_HOST_ROOT") or "/",
        python=request.get("python"),
        requirements=tuple(request.get("requirements") or ()),
        inside=tuple(request.get("inside") or ()),
    )
    return wanted, context


def _read_check(entry: Any, classes: dict[str, str]) -> Wanted:
    if not isinstance(entry, dict) or not isinstance(entry.get("check"), str):
        raise UsageError("each check is an object with a name `check`", given=str(entry)[:200])
    _refuse_unknown(entry, _CHECK_KEYS, "a check")
    place = classes.get(entry["check"])
    check = OwnCheck(entry["check"], place) if place else load_check(entry["check"])
    parameters = entry.get("parameters") or {}
    if place is None:
        _refuse_unknown(parameters, {parameter.name for parameter in check.parameters}, entry["check"])
    given = {key: value for key, value in parameters.items() if value is not None}
    return Wanted(
        check,
        entry.get("name") or entry["check"],
        {**check.defaults(), **given},
        bool(entry.get("required", True)),
        _deadline(entry.get("deadline_s") or check.deadline_s),
    )


def _deadline(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < 1e6:
        raise UsageError("deadline_s is a number of seconds", given=given, allowed="more than 0")
    return float(given)


def _asked_at(given: Any) -> float:
    """Return when the request was made, by the monotonic clock of this machine."""
    now = time.monotonic()
    if given is None:
        return now
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < float("inf"):
        raise UsageError("asked_at is a time of the monotonic clock", given=given, allowed="seconds")
    return min(now, float(given))


def _refuse_unknown(given: Any, allowed: Any, where: str) -> None:
    unknown = sorted(set(given) - set(allowed)) if isinstance(given, dict) else [str(given)[:200]]
    if unknown:
        raise UsageError(f"{where} does not take this", given=", ".join(unknown), allowed=sorted(allowed))
