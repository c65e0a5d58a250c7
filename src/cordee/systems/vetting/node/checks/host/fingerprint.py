"""Does the node run the same software as the others?"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from typing import Any

from cordee.machine.fingerprint import read_libraries, read_packages, read_system
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Comparison, Context, Parameter, Result
from cordee.systems.vetting.node.checks.inside import command_line, find

# What differs here costs speed at most; the rest can break a job that spans both nodes.
_HARMLESS = ("microcode", "huge_pages", "governor")
_ABSENT = "none"
# Compared even where a node has none of it: one driver that is missing is a difference.
_ALWAYS = (
    "kernel",
    "system",
    "nvidia_driver",
    "amd_driver",
    "cuda",
    "nccl",
    "libfabric",
    "net_plugin",
    "python",
    "python torch",
)
# Said, and not compared: where each node has its own virtual environment, the same software lies at different paths.
_PYTHON_PATH = "python path"
_PLACES = (_PYTHON_PATH,)
_PATIENCE_S = 5.0
# The current folder is no place of packages, nor may a file in it stand in for one of Python's own modules.
_ASK = (
    "import sys; sys.path = [p for p in sys.path if p]; import json; "
    "print(json.dumps([sys.version.split()[0], sys.path]))"
)


class FingerprintCheck(Check):
    """Reads versions and settings from files and holds each against the peers'; no GPU library is loaded for it."""

    name = "host.fingerprint"
    title = "Does the node run the same kernel, drivers, libraries and settings as the others?"
    parameters = (
        Parameter("env", "texts", "variables of the ranks' environment that must be the same on all nodes"),
        Parameter("expected", "map", "what a fact must be, such as nvidia_driver: 550.54.15"),
        Parameter("ignore", "texts", "facts that may differ, such as governor"),
        Parameter("python", "text", "the ranks' Python", default="python3"),
    )
    without_gpu = "The same; drivers and libraries that are not there count as none."

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        facts = dict.fromkeys(_ALWAYS, _ABSENT)
        facts.update(read_system(context.root))
        facts.update(read_libraries(context.root, context.env.get("LD_LIBRARY_PATH", "")))
        facts.update(_python_facts(parameters["python"], context))
        if facts["kernel"] == _ABSENT:
            raise CannotTest(f"{context.host('/proc/sys/kernel/osrelease')} cannot be read", "closed")
        for name in parameters.get("env") or []:
            facts[f"env {name}"] = context.env.get(name, "not set")
        expected = {name: str(value) for name, value in (parameters.get("expected") or {}).items() if value is not None}
        faults = [
            f"{name} is {facts.get(name, _ABSENT)}, {value} expected"
            for name, value in expected.items()
            if facts.get(name, _ABSENT) != value
        ]
        ignored = {*expected, *_PLACES, *(parameters.get("ignore") or [])}
        compare = [
            asdict(Comparison("same", name, status="warn" if name in _HARMLESS else "fail"))
            for name in sorted(facts)
            if name not in ignored
        ]
        words = [f"{name} {value}" for name, value in facts.items() if value != _ABSENT]
        status = "fail" if faults else "pass"
        return self.result(status, "; ".join(faults) or ", ".join(words), facts=dict(facts), compare=compare)


def _python_facts(python: str, context: Context) -> dict[str, str]:
    """Return version and packages of the ranks' Python; it is started once, without importing any of them."""
    path, reason = find([python], context)[0]
    if path is None:
        return {"python": f"{python} {reason}"}
    argv, folder = command_line([path, "-c", _ASK], context)
    try:
        done = subprocess.run(
            argv,
            env=context.env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=min(_PATIENCE_S, context.deadline_s),
            check=True,
        )
        version, folders = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"python": "does not answer", _PYTHON_PATH: path}
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return {"python": "cannot be started", _PYTHON_PATH: path}
    packages = {} if context.inside else read_packages(folders)
    return {"python": version, _PYTHON_PATH: path, **{f"python {name}": version for name, version in packages.items()}}
