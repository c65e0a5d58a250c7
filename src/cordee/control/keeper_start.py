"""How the keeper of a run on one machine is started and found, and what it looks at."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from cordee.control.identity import living_record
from cordee.control.supervisor.disks.startup import SUPERVISOR
from cordee.control.supervisor.ownership import Ownership
from cordee.machine.node_folder import IN_USE, folders_of, remove_folder
from cordee.machine.processes import tree as processes
from cordee.machine.processes.module_command import module_argv
from cordee.runs.folder import RunFolder
from cordee.runs.plan import RunPlan


def machine_nodes(plan: RunPlan) -> list[str]:
    """Return the names of a run's nodes on one machine: `local-0`, `local-1` and so on, spares included."""
    request = plan.step.request
    return [f"local-{index}" for index in range(request.nodes + request.spare_nodes)]


def heartbeat(folder: RunFolder) -> int:
    """Return when the run's supervisor on this machine showed last that it lives, in ns of a clock of its own; 0: never."""
    hearts = [path / IN_USE for path in folders_of(folder.id, SUPERVISOR)]
    return max(_mtime_ns(path) for path in hearts or [folder.control / "heartbeat"])


def forget_heartbeat(folder: RunFolder) -> None:
    """Remove the heartbeat from this machine's memory: the run is over."""
    for path in list(folders_of(folder.id, SUPERVISOR)):
        remove_folder(path)


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def node_side_environment(folder: RunFolder) -> dict[str, str]:
    """Return the environment in which the run's own copy of the node side is imported, with a marker to find it by."""
    zipped = str(folder.node_zip)
    rest = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != zipped]
    marker = {processes.MARKER: f"{folder.id}/control"}
    return {**os.environ, "PYTHONPATH": os.pathsep.join([zipped, *rest]), **marker}


def keeper_record(folder: RunFolder) -> dict[str, Any]:
    """Return the identity of the run's living keeper, empty when there is none."""
    keepers = folder.control / "keepers"
    newest = Ownership(keepers).newest()
    return living_record(keepers / str(newest) / "owner.json") if newest else {}


def keeper_command(folder: RunFolder) -> list[str]:
    """Return the command line of a run's keeper."""
    return module_argv("cordee.control.keeper", "--folder", str(folder.root))


def start_keeper(folder: RunFolder) -> int:
    """Start a keeper that outlives this process and its terminal; returns its pid. One that is not needed ends itself.

    Raises:
        OSError: it cannot be started.
    """
    with open(folder.control / "keeper.log", "ab") as log:
        process = subprocess.Popen(
            keeper_command(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=node_side_environment(folder),
            start_new_session=True,
        )
    process.returncode = 0
    return process.pid
