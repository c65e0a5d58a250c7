"""host.modules: the Python modules that the job needs can be imported by the ranks' Python."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any, Mapping

from cordee.node.checks._base import Check, Result, unknown

_PROGRAM = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(name)
        print("ok", name, str(getattr(module, "__version__", "?")).split()[0], flush=True)
    except BaseException as error:
        print("bad", name, (type(error).__name__ + ": " + str(error)).replace("\\n", " ")[:300], flush=True)
"""


class ModulesCheck(Check):
    """Parameters: `modules`, `python` (a command), `deadline_s`."""

    def run(self, parameters: Mapping[str, Any], request: Mapping[str, Any]) -> Result:
        """Really import each module, in one process of that Python."""
        env, modules = dict(request.get("env", {})), parameters["modules"]
        name = parameters["python"]
        python = shutil.which(name, path=env.get("PATH")) or (shutil.which("python3", path=env.get("PATH")) if name == "python" else None)
        if python is None:
            return unknown(f"there is no {name} on PATH")
        command = [python, "-c", _PROGRAM, *modules]
        try:
            done = subprocess.run(
                command, env=env, cwd=request.get("workdir"), capture_output=True, timeout=parameters["deadline_s"], check=False
            )
        except subprocess.TimeoutExpired:
            return unknown(f"importing {', '.join(modules)} took longer than {parameters['deadline_s']:.0f} s")
        lines = [line.split(" ", 2) for line in done.stdout.decode(errors="replace").split("\n") if line[:3] in ("ok ", "bad")]
        good = [f"{parts[1]} {parts[2]}" for parts in lines if parts[0] == "ok"]
        bad = [f"{parts[1]}: {parts[2]}" for parts in lines if parts[0] == "bad"]
        if bad:
            return Result("fail", f"{python} cannot import {'; '.join(bad)}", float(len(good)), "modules", float(len(modules)))
        if len(good) < len(modules):
            return unknown(f"{python} ended with code {done.returncode} while importing {modules[len(good)]}")
        return Result("pass", ", ".join(good), float(len(good)), "modules", float(len(modules)))
