"""Who a process is, also after a reboot or on another host, and the records that others find it by."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from cordee.machine.processes.tree import is_same_process, read_process
from cordee.runs.folder import RunFolder


def identity() -> dict[str, Any]:
    """Return what tells this process from any other."""
    process = read_process(os.getpid())
    return {
        "pid": os.getpid(),
        "start_ticks": process.start_ticks if process else 0,
        "host": socket.gethostname(),
        "boot": _boot(),
    }


def on_this_host(owner: dict[str, Any]) -> bool:
    """Return whether the process that `identity` described ran on this host, since its last boot."""
    return bool(owner.get("host") == socket.gethostname() and owner.get("boot") == _boot())


def alive_here(owner: dict[str, Any]) -> bool:
    """Return whether the process that `identity` described still runs on this host."""
    return on_this_host(owner) and is_same_process(owner["pid"], owner["start_ticks"])


def agent_file(folder: RunFolder, node: str) -> Path:
    """Return where a node's agent is recorded."""
    return folder.control / f"agent-{node}.json"


def read_record(path: Path) -> dict[str, Any]:
    """Return a small JSON document of the control folder, empty when it is not there or torn."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def living_record(path: Path) -> dict[str, Any]:
    """Return the record of a process that still runs on this machine, else an empty one."""
    record = read_record(path)
    return record if record and alive_here(record) else {}


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
