"""The daemons of a disposable cluster, and what its nodes have below them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from cordee.machine.processes import tree as processes
from cordee.testing.daemons import Daemons, DisposableError, environment_of, find_program, living_processes
from cordee.testing.packages import Packages

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


def packages_of(suite: str) -> Packages:
    """Return Slurm and munge of a Debian suite."""
    names = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "libslurm-dev", "munge")
    programs = ("usr/sbin/slurm*", "usr/sbin/munged", "usr/bin/s*", "usr/bin/*munge")
    what = "use the Slurm that is installed"
    return Packages("Slurm", suite, names, programs, "usr/lib/*/slurm-wlm/libslurmfull.so", what)


def plugin_folder(suite: str) -> str:
    """Return where the plugins of a suite's Slurm lie: it looks for them where they would be installed."""
    return str(next(packages_of(suite).folder.glob("usr/lib/*/slurm-wlm")))


def link_programs(folder: Path, packages: Packages) -> None:
    """Make a folder with the names that Slurm's programs have where they are installed."""
    folder.mkdir()
    for program in sorted(path for pattern in packages.programs for path in packages.folder.glob(pattern)):
        (folder / program.name.removesuffix("-wlm")).symlink_to(program)


def require_programs(names: Iterable[str], path: str | None = None) -> None:
    """Raise DisposableSlurmError with the Debian packages that are missing.

    Args:
        path: looked in instead of PATH.
    """
    missing = [name for name in names if find_program(name, path) is None]
    if missing:
        packages = " ".join(sorted({_PACKAGES[name] for name in missing}))
        raise DisposableSlurmError(
            f"a disposable Slurm needs Debian packages that are not installed: {packages}",
            given=f"not found: {', '.join(missing)}",
            next=f"sudo apt-get install {packages}",
        )


class SlurmDaemons(Daemons):
    """The daemons of one cluster: installed programs, or those that its environment leads to."""

    def start(self, name: str, argv: list[str], env: Mapping[str, str]) -> None:
        """Start a daemon that stays in the foreground of a session of its own."""
        program = find_program(argv[0], env.get("PATH"))
        if program is None:
            require_programs([argv[0]], env.get("PATH"))
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
