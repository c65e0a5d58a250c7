"""host.disk: the run's and the node's temporary folder have space and can really be written."""

from __future__ import annotations

import os
import secrets
import tempfile
from typing import Any, Mapping, Optional

from cordee.node.checks._base import Check, Result
from cordee.units import format_size

_PROBE = b"cordee" * 700


class DiskCheck(Check):
    """Parameters: `folders`, `min_bytes`."""

    def run(self, parameters: Mapping[str, Any], request: Mapping[str, Any]) -> Result:
        """Write a small file to each folder, read it back, and compare the free space."""
        least = parameters["min_bytes"]
        tightest = float("inf")
        for folder in [*parameters["folders"], tempfile.gettempdir()]:
            broken = _write_and_read(folder)
            if broken is not None:
                return Result("fail", f"{folder} cannot be written: {broken}")
            space = os.statvfs(folder)
            free = space.f_bavail * space.f_frsize
            if free < least:
                text = f"{format_size(free)} free in {folder}, {format_size(least)} wanted"
                return Result("fail", text, float(free), "bytes", float(least))
            if space.f_files and not space.f_favail:
                return Result("fail", f"no more files can be made in {folder}: its inodes are used up", 0.0, "files", 1.0)
            tightest = min(tightest, free)
        return Result("pass", f"{format_size(tightest)} free, writable", tightest, "bytes", float(least))


def _write_and_read(folder: str) -> Optional[str]:
    path = os.path.join(folder, f".cordee-{secrets.token_hex(6)}")
    try:
        with open(path, "xb") as file:
            file.write(_PROBE)
        with open(path, "rb") as file:
            same = file.read() == _PROBE
        return None if same else "what was written came back changed"
    except OSError as error:
        return error.strerror or str(error)
    finally:
        try:
            os.unlink(path)
        except OSError:
            pass
