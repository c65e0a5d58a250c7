"""The daemons of a disposable cluster, and what its nodes have below them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from cordee.machine.processes import tree as processes
from cordee.testing.daemons import Daemons, DisposableError, environment_of, find_program, living_processes

_PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "scontrol": "slurm-client",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
}

# What a person's shell or the job around it tells Slurm's commands, which is about another cluster.
_ABOUT_ANOTHER = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_")


class DisposableSlurmError(DisposableError):
    """A disposable Slurm cannot be made, or one of its daemons does not do what it should."""


def clean_environment() -> dict[str, str]:
    """Return this process' environment without what is about another cluster."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_ABOUT_ANOTHER)}


def require_programs(names: Iterable[str]) -> None:
    """Raise DisposableSlurmError with the Debian packages that are missing."""
    missing = [name for name in names if find_program(name) is None]
    if missing:
        packages = " ".join(sorted({_PACKAGES[name] for name in missing}))
        raise DisposableSlurmError(
            f"a disposable Slurm needs Debian packages that are not installed: {packages}",
            given=f"not found: {', '.join(missing)}",
            next=f"sudo apt-get install {packages}",
        )


class SlurmDaemons(Daemons):
    """The daemons of one cluster, which are installed programs."""

    def start(self, name: str, argv: list[str], env: Mapping[str, str]) -> None:
        """Start a daemon that stays in the foreground of a session of its own."""
        program = find_program(argv[0])
        if program is None:
            require_programs([argv[0]])
        super().start(name, [str(program), *argv[1:]], {**clean_environment(), **env})


def node_processes(conf: Path, node: str, log: Path) -> set[int]:
    """Return the pids of a node: its slurmd and slurmstepds (they have its log open), its tasks, and all below these."""
    table = living_processes()
    marks = {f"SLURM_CONF={conf}".encode(), f"SLURMD_NODENAME={node}".encode()}
    seeds = {pid for pid in table if pid != os.getpid() and (_holds(pid, str(log)) or marks <= environment_of(pid))}
    return seeds | processes.descendants(seeds, table)


def _holds(pid: int, path: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        if not _comm(pid).startswith(b"slurm"):
            return False
        return any(os.readlink(f"{folder}/{entry}") == path for entry in os.listdir(folder))
    except OSError:
        return False


def _comm(pid: int) -> bytes:
    return Path(f"/proc/{pid}/comm").read_bytes()
