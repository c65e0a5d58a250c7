"""Interpreters with a fault, as executables on PATH: what a check runs is the same, the machine below it seems broken."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

# Each is Python that runs before the program, in every process of the interpreter.
_WRAP_NUMPY = """
import sys, importlib.abc, importlib.util
class Patch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name != "numpy":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("numpy")
        sys.meta_path.insert(0, self)
        self.loader, spec.loader = spec.loader, self
        return spec
    def create_module(self, spec):
        return self.loader.create_module(spec)
    def exec_module(self, module):
        self.loader.exec_module(module)
        real = module.matmul
        calls = []
        def matmul(a, b):
            product = real(a, b)
            if float(a[0, 0]).is_integer():
                calls.append(1)
            {fault}
            return product
        module.matmul = matmul
sys.meta_path.insert(0, Patch())
"""
FAULTS = {
    # One element of every third product of integers is off by one, its last bit.
    "wrong_bits": _WRAP_NUMPY.format(
        fault="if calls and float(a[0, 0]).is_integer() and len(calls) % 3 == 2: product[0, 0] += 1"
    ),
    # Every product takes its time ten times.
    "slow": _WRAP_NUMPY.format(fault="[real(a, b) for _ in range(9)]"),
    "no_numpy": "import sys\nsys.modules['numpy'] = None\n",
    "no_torch": "import sys\nsys.modules['torch'] = None\n",
    "crash": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "exit": "import os, sys\nprint('libfancy.so: version mismatch', file=sys.stderr, flush=True)\nos._exit(7)\n",
    "hang": "import time\nwhile True: time.sleep(600)\n",
}


def write_interpreter(folder: Path, fault: str, python: str = sys.executable) -> Path:
    """Write `python3`, which runs `python` with a fault, and return the folder to put in front of PATH.

    Args:
        folder: where; made when it is not there.
        fault: a key of `FAULTS`, or Python source that runs before everything else.
        python: the interpreter that does the work.
    """
    before = folder / "before"
    before.mkdir(parents=True, exist_ok=True)
    (before / "sitecustomize.py").write_text(FAULTS.get(fault, fault))
    command = folder / "python3"
    words = f'PYTHONPATH={shlex.quote(str(before))}"${{PYTHONPATH:+:$PYTHONPATH}}" exec {shlex.quote(python)} "$@"'
    command.write_text(f"#!/bin/sh\n{words}\n")
    command.chmod(0o755)
    return folder
