"""Can the ranks write where they must, and is there room?"""

from __future__ import annotations

import os
import secrets
from typing import Any, Optional

from cordee.core.units import format_size
from cordee.systems.vetting.node.checks._base import Check, Context, Parameter, Result

_MIN_INODES = 1000
_PROBE_BYTES = 65536


class DiskCheck(Check):
    """Looks at free bytes and inodes and really writes a small file, in the run's and in the temporary folder."""

    name = "host.disk"
    title = "Can the ranks write where they must, and is there room?"
    parameters = (
        Parameter("run_folder", "text", "the run's folder, where there is none in the context"),
        Parameter("min_bytes", "size", "fewest free bytes", default=0),
        Parameter("min_inodes", "count", "fewest files that can still be made", default=1000),
        Parameter("paths", "map", "more folders, by what they are called"),
        Parameter("env", "map", "variables on top of the ranks' environment"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        minimum = parameters.get("min_bytes") or 0
        min_inodes = parameters.get("min_inodes", _MIN_INODES)
        places = dict(parameters.get("paths") or {})
        run_folder = parameters.get("run_folder") or context.run_folder
        if run_folder:
            places["run folder"] = run_folder
        places["temporary folder"] = (parameters.get("env") or {}).get("TMPDIR") or context.temporary
        faults, facts, least = [], [], None
        for label, path in places.items():
            free, fault = _look(path, minimum, min_inodes)
            if free is not None:
                least = free if least is None else min(least, free)
                facts.append(f"{label} {path}: {format_size(free)} free")
            if fault is not None:
                faults.append(f"{label} {path}: {fault}")
        status = "fail" if faults else "pass"
        return self.result(status, "; ".join(faults or facts), value=least, unit="bytes", threshold=minimum)


def _look(path: str, min_bytes: int, min_inodes: int) -> tuple[Optional[int], Optional[str]]:
    """Return the free bytes and what is wrong with a folder."""
    try:
        status = os.statvfs(path)
        free = status.f_bavail * status.f_frsize
    except OSError as error:
        return None, error.strerror
    fault = _write_fault(path)
    if fault is None and free < min_bytes:
        fault = f"{format_size(free)} free, {format_size(min_bytes)} needed"
    if fault is None and status.f_files and status.f_favail < min_inodes:
        fault = f"{status.f_favail} files (inodes) left, {min_inodes} needed"
    return free, fault


def _write_fault(path: str) -> Optional[str]:
    """Write a file that has no name any more, so that nothing is left behind when this process is killed."""
    name = os.path.join(path, f".cordee-check-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.unlink(name)
            if os.write(descriptor, bytes(_PROBE_BYTES)) < _PROBE_BYTES:
                return "No space left on device"
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"cannot write: {error.strerror}"
    return None
