"""Runs in containers under test: an EDF for a bare root with this machine's Python in it, and what holds its containers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from cordee.machine.processes import tree as processes
from support.runs.real_run import LocalRun


def edf_with_python(image: Path, env: str = "") -> str:
    """Return an EDF of an image into which the loader, the libraries and the interpreter of this Python are mounted.

    Args:
        image: a root without any of that, such as `cordee.testing.images.busybox_root` makes.
        env: more lines of the table [env].
    """
    folders = sorted(path for path in {"/usr", "/lib", "/lib64", sys.base_prefix} if os.path.isdir(path))
    mounts = [f"{path}:{path}:ro" for path in folders if path == "/usr" or not path.startswith("/usr/")]
    path = f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"
    return f'image = "{image}"\nmounts = {json.dumps(mounts)}\n[env]\nPATH = "{path}"\n{env}\n'


def holders(run: LocalRun, node: str) -> list[int]:
    """Return the pids of what holds the container of a run's node, on this machine."""
    found = processes.with_marker(f"{run.folder.id}/{node}/")
    return [each.pid for each in found if (processes.marker_of(each.pid) or "").endswith("/container")]


def mounts_left(run: LocalRun) -> list[str]:
    """Return the mounts that this process sees and that have to do with a run, or with holding containers."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if run.folder.id in line or "cordee" in line]
