"""Can the ranks' own Python import the modules that the job needs?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any, Optional

from cordee.systems.vetting.node.checks._base import Check, Context, Parameter, Result, find_command
from cordee.systems.vetting.node.checks.inside import command_line, find

_MARGIN_S = 0.5
# The current folder has modules of the ranks, and none that this program itself needs.
_IMPORTER = r"""
import sys
path, sys.path = sys.path, [entry for entry in sys.path if entry]
import json, os
sys.path = path
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for name in json.loads(sys.argv[1]):
    answers.write(json.dumps({"begin": name}) + "\n"); answers.flush()
    answer = {"module": name, "version": None, "error": None}
    try:
        __import__(name)
        version = getattr(sys.modules[name], "__version__", None)
        if version is None:
            try:
                from importlib.metadata import version as version_of
                version = version_of(name.split(".")[0])
            except Exception:
                pass
        answer["version"] = None if version is None else str(version)
    except BaseException as error:
        answer["error"] = (type(error).__name__ + ": " + str(error))[:300]
    answers.write(json.dumps(answer) + "\n"); answers.flush()
os._exit(0)
"""


class ModulesCheck(Check):
    """Really imports `modules`, since a module that can be found may still fail to load its libraries.

    The interpreter is `python` when that names one, else the one in the first line of that script, else the `python3`
    or `python` on PATH. A module that ends or breaks the interpreter fails; one that does not end in time is unknown.
    """

    name = "host.modules"
    title = "Can the ranks' own Python import the modules that the job needs?"
    scope = "user"
    parameters = (
        Parameter("modules", "texts", "the modules", needed=True),
        Parameter("python", "text", "first word of the ranks' command: tells which Python"),
        Parameter("env", "map", "variables on top of the ranks' environment"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        env = {**context.env, **(parameters.get("env") or {})}
        modules = list(parameters["modules"])
        python = _interpreter(parameters.get("python") or "python3", env, context)
        if python is None:
            return self.result("unknown", "no Python is on the PATH of the ranks' environment", cause="absent")
        budget = max(0.1, context.deadline_s - _MARGIN_S)
        lines, code, complaints = _import_all(python, modules, env, context, budget)
        answers = {line["module"]: line for line in lines if "module" in line}
        begun = [line["begin"] for line in lines if "begin" in line]
        faults = [f"{name}: {line['error']}" for name, line in answers.items() if line["error"]]
        stuck = begun[-1] if begun and begun[-1] not in answers else None
        good = len(answers) - len(faults)
        measured: dict[str, Any] = {"value": good, "unit": "modules", "threshold": len(modules)}
        if code is not None and stuck is not None:
            faults.append(f"{stuck}: importing it {_ending(code)}{complaints}")
        if faults:
            return self.result("fail", f"{python}: " + "; ".join(faults), **measured)
        if len(answers) < len(modules):
            reason = f"importing {stuck} did not end within {budget:.0f} s" if stuck else f"{_ending(code)}{complaints}"
            cause = "timeout" if stuck else "error"
            return self.result("unknown", f"{python}: {reason}", cause=cause, **measured)
        versions = (f"{name} {line['version']}" if line["version"] else name for name, line in answers.items())
        return self.result("pass", f"{python}: " + ", ".join(versions), **measured)


def _import_all(
    python: str, modules: list[str], env: dict[str, str], context: Context, budget_s: float
) -> tuple[list[dict[str, Any]], Optional[int], str]:
    """Return the importer's lines, its exit code (None: killed by us) and the last thing it complained about."""
    deadline = time.monotonic() + budget_s
    argv, workdir = command_line([python, "-c", _IMPORTER, json.dumps(modules)], context)
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=workdir,
    )
    try:
        output, errors = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
        code: Optional[int] = process.returncode
    except subprocess.TimeoutExpired as expired:
        output, errors, code = expired.stdout or b"", b"", None
        process.kill()
    lines = []
    for line in output.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    complaint = errors.decode(errors="replace").strip().splitlines()[-1:]
    return lines, code, f" ({complaint[0][:300]})" if complaint else ""


def _ending(code: Optional[int]) -> str:
    if code is None:
        return "the interpreter did not end in time"
    if code < 0:
        return f"ended the interpreter with {signal.Signals(-code).name}"
    return f"ended the interpreter with exit code {code}"


def _interpreter(argv0: str, env: dict[str, str], context: Context) -> Optional[str]:
    """Return the Python that runs `argv0`; of a container the one on its PATH, unless `argv0` names one."""
    if context.inside:
        names = [*([argv0] if _names_python(argv0) else []), "python3", "python"]
        return next((path for path, _ in find(names, context, env) if path), None)
    workdir = context.workdir
    path = find_command(argv0, env, workdir)[0]
    if path is not None and _names_python(path):
        return path
    if path is not None:
        with open(path, "rb") as file:
            first = file.readline(512).decode(errors="replace").strip()
        words = first[2:].split() if first.startswith("#!") else []
        for word in words[:2]:
            if _names_python(word):
                found = find_command(word, env, workdir)[0]
                if found is not None:
                    return found
    for name in ("python3", "python"):
        found = find_command(name, env, workdir)[0]
        if found is not None:
            return found
    return None


def _names_python(path: str) -> bool:
    return os.path.basename(path).startswith(("python", "pypy"))
