"""`com.hooks.slurm`: the commands of Slurm inside, as scripts call them in the middle of a job."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Mapping

from cordee.systems.environments.node.document import ContainerMount, Environment
from cordee.systems.environments.node.engines._base import MissingCapability
from cordee.systems.environments.node.hooks._base import Hook
from cordee.systems.environments.node.hooks.host_program import host_program, program_mounts, with_mounts

_PROGRAMS = ("scontrol", "srun", "sbatch", "salloc", "squeue", "sinfo", "scancel", "sacct", "sattach", "sbcast")
_SETTINGS = ("/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf", "/var/spool/slurmd/conf-cache")
_MUNGE = ("/run/munge", "/var/run/munge")
# Its name, that of its folders, and usually of its user.
_OWN = "slurm"
# What Slurm loads by itself lies in these, under names that its build has fixed.
_LIBRARIES = ("slurm-wlm", _OWN)
_SOCKET = re.compile(r"^\s*AuthInfo\s*=.*\bsocket=([^,\s]+)", re.MULTILINE | re.IGNORECASE)
_LOADED = ("auth_munge.so", "cred_munge.so", "hash_k12.so")


class SlurmHook(Hook):
    """Shows the host's commands of Slurm, its configuration, its libraries and the socket of munge."""

    name = _OWN
    required = False

    def missing(self, settings: Mapping[str, str], host: Mapping[str, str]) -> list[MissingCapability]:
        if host_program("scontrol"):
            return []
        return [MissingCapability(_OWN, "scontrol is not installed on this machine", "run it where Slurm is")]

    def apply(self, environment: Environment, settings: Mapping[str, str], host: Mapping[str, str]) -> Environment:
        if environment.root is None or environment.root.kind == "host":
            return environment
        programs = [(path, f"/usr/local/bin/{name}") for name in _PROGRAMS for path in [host_program(name)] if path]
        folders = [folder for folder in _plugin_folders(programs[0][0]) if os.path.isdir(folder)]
        loaded = [f"{folder}/{name}" for folder in folders for name in _LOADED if os.path.exists(f"{folder}/{name}")]
        shown = [*folders, *(place for place in (*_SETTINGS, *_MUNGE) if os.path.isdir(place))]
        conf = host.get("SLURM_CONF") or next((f"{place}/slurm.conf" for place in _SETTINGS), "")
        shown += [place for place in (os.path.dirname(conf), _munge_folder(conf)) if os.path.isdir(place)]
        mounts = [ContainerMount(place, place, ("ro",)) for place in dict.fromkeys(shown)]
        environment = with_mounts(environment, [*program_mounts(programs, loaded), *mounts])
        # Slurm looks up the user that its configuration names, and gives up where there is none.
        return replace(environment, accounts=(_OWN, "munge"))


def _munge_folder(conf: str) -> str:
    """Return where a configuration has munge's socket, where that is not the usual place."""
    try:
        with open(conf, encoding="utf-8", errors="replace") as file:
            found = _SOCKET.search(file.read())
    except OSError:
        return ""
    return os.path.dirname(found[1]) if found else ""


def _plugin_folders(program: str) -> list[str]:
    real = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    machine = os.uname().machine
    roots = [
        f"{real}/lib/{machine}-linux-gnu",
        f"{real}/lib64",
        f"{real}/lib",
        f"/usr/lib/{machine}-linux-gnu",
        "/usr/lib64",
    ]
    return list(dict.fromkeys(f"{root}/{name}" for root in roots for name in _LIBRARIES))
