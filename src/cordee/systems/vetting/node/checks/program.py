"""Runs a program of ours in the ranks' own interpreter, in a process that can be killed.

Heavy libraries are imported there only. What is killed with the check is the whole process group, the program included;
and should its parent die in another way, the kernel kills the program.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from cordee.systems.vetting.node.checks._base import CannotTest, Context
from cordee.systems.vetting.node.checks.child import CheckChild
from cordee.systems.vetting.node.checks.inside import command_line, find

# Only `cordee` comes from our place: a folder or zip of ours on the path could hide the interpreter's own libraries.
_START = """
import importlib, sys
if sys.version_info < (3, 9):
    sys.stdout.write('{"cannot": "%s is Python %d.%d; 3.9 or newer is needed", "cause": "absent"}' % (
        sys.executable, sys.version_info[0], sys.version_info[1]))
    sys.exit(0)
from importlib.machinery import PathFinder
place, module = sys.argv[1:3]
class Only:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [place]) if name == "cordee" else None
sys.meta_path.insert(0, Only)
sys.path[:] = [entry for entry in sys.path if entry]
importlib.import_module(module).main()
"""
_PLACE = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
)
_MARGIN_S = 1.0
_STACK_PATIENCE_S = 0.4
_LAST_LINES = 3


@dataclass(frozen=True)
class ProgramOutcome:
    """What became of a program.

    Attributes:
        python: the interpreter that ran it.
        done: what it found; None when it did not end well.
        said: all objects that it wrote, in order.
        status: `unknown` or `fail` when it did not end well, else `pass`.
        text: why.
        cause: why it is unknown, one of `CAUSES`.
        stack: where it was when it was stopped, the innermost frame first.
    """

    python: str
    done: Optional[dict[str, Any]]
    said: list[dict[str, Any]]
    status: str = "pass"
    text: str = ""
    cause: Optional[str] = None
    stack: list[str] = field(default_factory=list)


def command_of(python: str, program: str) -> list[str]:
    """Return the command that runs `cordee.systems.vetting.node.checks.programs.<program>` in an interpreter that need not know Cordée."""
    return [python, "-c", _START, _PLACE, f"cordee.systems.vetting.node.checks.programs.{program}"]


def interpreter(context: Context) -> str:
    """Return the interpreter of the ranks: that of the protocol's requirements (of the host), else the one on their PATH.

    Raises:
        CannotTest: there is none.
    """
    if context.python:
        if os.access(context.python, os.X_OK):
            return context.python
        raise CannotTest(f"{context.python}: no such interpreter on this node; `cordee vet prepare` makes it", "absent")
    for found, _ in find(("python3", "python"), context):
        if found is not None:
            return found
    raise CannotTest("no Python is on the PATH of the ranks' environment", "absent")


def require(context: Context) -> None:
    """Make sure that the interpreter has what the protocol's own checks need.

    Raises:
        CannotTest: it lacks something; nothing is ever installed while nodes are vetted.
    """
    if context.python or not context.requirements:
        return  # an interpreter that was prepared has them all
    outcome = run_program("installed", {"requirements": list(context.requirements)}, context)
    if outcome.done is None:
        raise CannotTest(outcome.text, outcome.cause or "error")
    if outcome.done["lacking"]:
        text = f"{outcome.python} lacks {', '.join(outcome.done['lacking'])}: run `cordee vet prepare PROTOCOL`"
        raise CannotTest(text, "absent")


def run_program(program: str, parameters: dict[str, Any], context: Context) -> ProgramOutcome:
    """Run a program to its end, or until shortly before the deadline, and return what became of it.

    Args:
        program: a module of `cordee.systems.vetting.node.checks.programs`, by its last name.
        parameters: what it gets, as JSON on standard input.
        context: of the check.

    Raises:
        CannotTest: there is no interpreter, or it cannot be started.
    """
    python = interpreter(context)
    budget_s = max(0.8 * context.deadline_s, context.deadline_s - _MARGIN_S)
    until = time.monotonic() + budget_s
    request = json.dumps({**parameters, "deadline_s": budget_s}).encode()
    try:
        where = replace(context, inside=()) if context.python else context
        child = CheckChild(*_started(command_of(python, program), where), request)
    except OSError as error:
        raise CannotTest(f"{python} cannot be started: {error.strerror}", "error") from None
    try:
        if not child.wait(until - time.monotonic()):
            return _late(child, python, budget_s)
        return _ended(child.code or 0, python, _objects(child.output), child.errors)
    finally:
        child.close()


def _started(argv: list[str], context: Context) -> tuple[list[str], dict[str, str], str]:
    words, folder = command_line(argv, context)
    return words, context.env, folder


def _late(child: CheckChild, python: str, budget_s: float) -> ProgramOutcome:
    """Ask a program where it is; it is killed then."""
    child.signal(signal.SIGUSR2)
    child.wait(_STACK_PATIENCE_S)
    lines = child.errors.decode(errors="replace").splitlines()
    stack = [line.strip() for line in lines if line.strip().startswith("File ")]
    said = _objects(child.output)
    text = f"did not end within {budget_s:.3g} s{_while(said)}"
    if stack:
        text += f"; it was at: {stack[0]}"
    return ProgramOutcome(python, None, said, "unknown", text, "timeout", stack)


def _ended(code: int, python: str, said: list[dict[str, Any]], errors: bytes) -> ProgramOutcome:
    last = said[-1] if said else {}
    if code == 0 and "done" in last:
        return ProgramOutcome(python, last["done"], said)
    if code == 0 and "cannot" in last:
        where = _while(said) if last["cause"] == "unusable" else ""
        return ProgramOutcome(python, None, said, "unknown", last["cannot"] + where, last["cause"])
    if code == 0 and "broken" in last:
        return ProgramOutcome(python, None, said, "fail", f"{last['broken']}{_while(said)}")
    words = [line for line in errors.decode(errors="replace").strip().splitlines() if line.strip()][-_LAST_LINES:]
    complaint = f": {' | '.join(words)[-500:]}" if words else ""
    if code < 0:
        text = f"{python} was ended by {signal.Signals(-code).name}{_while(said)}{complaint}"
        return ProgramOutcome(python, None, said, "unknown", text, "error")
    text = f"{python} ended with exit code {code} and no result{_while(said)}{complaint}"
    return ProgramOutcome(python, None, said, "unknown", text, "error")


def _while(said: list[dict[str, Any]]) -> str:
    begun = [entry["begin"] for entry in said if "begin" in entry]
    return f" while at {begun[-1]}" if begun else ""


def _objects(output: bytes) -> list[dict[str, Any]]:
    found = []
    for line in output.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found
