"""Whose a process is, as /proc tells."""

from __future__ import annotations

import os
from typing import Mapping, Optional

from cordee.machine.files import read_once

# Variables that all processes of a job share.
_JOB_VARIABLES = ("SLURM_JOB_ID", "CORDEE_RUN_ID")


def process_name(pid: int, root: str = "/") -> Optional[str]:
    """Return the name of the program, or None when the process is not seen: it ended, or lives in another container."""
    try:
        return read_once(os.path.join(root, f"proc/{pid}/comm")).decode(errors="replace").strip()
    except OSError:
        return None


def belongs_to_job(pid: int, env: Mapping[str, str], root: str = "/") -> bool:
    """Return whether a process is of the same Slurm job or the same run as the environment `env`.

    Its control group names Slurm's job; the process's own variables are read where that is permitted.
    """
    job = env.get("SLURM_JOB_ID")
    try:
        groups = read_once(os.path.join(root, f"proc/{pid}/cgroup")).decode(errors="replace")
    except OSError:
        return False
    if job and any(f"job_{job}" in line.split("/") for line in groups.splitlines()):
        return True
    try:
        variables = read_once(os.path.join(root, f"proc/{pid}/environ")).split(b"\0")
    except OSError:
        return False
    return any(env.get(name) and f"{name}={env[name]}".encode() in variables for name in _JOB_VARIABLES)
