"""Starting daemons that are known by pid and start time, and ending exactly those and what nodes have below them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cordee.core.errors import CordeeError
from cordee.machine.processes import tree as processes
from cordee.testing.patience import PatientWait

POLL_S = 0.05
_TAIL_BYTES = 1500
_END_S = 8.0
# Debian puts the daemons where an ordinary user's PATH does not lead.
_SEARCH = ("/usr/local/sbin", "/usr/sbin", "/sbin")
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
# The shell writes its own line of /proc before it becomes the daemon: whatever happens to the one who starts it, no
# daemon runs without a record of its pid and start time.
_RECORD_AND_BECOME = 'cat "/proc/$$/stat" > "$0" && exec "$@"'

# What a person's shell or the job around it tells Slurm's commands, which is about another cluster.
_ABOUT_ANOTHER = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_")

# Reads until whoever started it has closed the other end, if only by dying.
_GUARD = """
import sys
sys.stdin.read()
from pathlib import Path
from cordee.testing.slurm import DisposableSlurm
DisposableSlurm(Path(sys.argv[1])).down()
"""


class DisposableSlurmError(CordeeError):
    """A disposable Slurm cannot be made, or one of its daemons does not do what it should."""

    kind = "testing"


def find_program(name: str) -> str | None:
    """Return the path of a program on PATH or in the system's own folders, None when it is not installed."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_SEARCH]))


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


class Daemons:
    """The daemons of one cluster, each with a record `pid/NAME` and its output in `log/NAME.out`.

    Args:
        folder: the cluster's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, argv: list[str], env: Mapping[str, str]) -> None:
        """Start a daemon that stays in the foreground of a session of its own."""
        record = self.folder / "pid" / name
        record.unlink(missing_ok=True)
        program = find_program(argv[0])
        if program is None:
            require_programs([argv[0]])
        command = ["/bin/sh", "-c", _RECORD_AND_BECOME, str(record), str(program), *argv[1:]]
        with (self.folder / "log" / f"{name}.out").open("ab") as output:
            self._children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**clean_environment(), **env},
                cwd=self.folder,
                start_new_session=True,
            )

    def pid(self, name: str) -> int | None:
        """Return the pid of a daemon that lives, None when it does not."""
        child = self._children.get(name)
        if child is not None:
            child.poll()  # a dead child is collected
        try:
            text = (self.folder / "pid" / name).read_bytes()
        except OSError:
            text = b""
        if not text.strip():
            return child.pid if child is not None and child.returncode is None else None
        pid, ticks = int(text.split()[0]), int(text[text.rfind(b")") + 2 :].split()[19])
        return pid if processes.is_same_process(pid, ticks) else None

    def names(self) -> list[str]:
        """Return the daemons that were ever started, alive or not."""
        return sorted({path.name for path in (self.folder / "pid").glob("*")} | set(self._children))

    def living(self) -> list[str]:
        """Return the daemons that live."""
        return [name for name in self.names() if self.pid(name) is not None]

    def end(self, names: Iterable[str], number: int = signal.SIGTERM) -> None:
        """End daemons and wait until they are gone; those that do not go are killed."""
        pending = list(names)
        self._signal(pending, number)
        if not wait_until(lambda: not any(self.pid(name) for name in pending), _END_S):
            self._signal(pending, signal.SIGKILL)
            wait_until(lambda: not any(self.pid(name) for name in pending), _END_S)

    def _signal(self, names: Iterable[str], number: int) -> None:
        processes.kill_all((pid for name in names if (pid := self.pid(name)) is not None), number)

    def tails(self) -> str:
        """Return the last words in the daemons' logs."""
        logs = {path.name: path.read_bytes() for path in sorted((self.folder / "log").glob("*"))}
        texts = []
        for name, data in logs.items():
            # What a daemon of Slurm prints is in its log too, once it has one.
            repeated = name.endswith(".out") and logs.get(name.removesuffix(".out") + ".log")
            if data and not repeated:
                texts.append(f"--- {name}\n{data[-_TAIL_BYTES:].decode(errors='replace').strip()}")
        return "\n".join(texts)


def start_guard(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that takes down the cluster of a folder, if there is one, as soon as this one closes its end."""
    command = [sys.executable, "-c", _GUARD, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", start_new_session=True)


def node_processes(conf: Path, node: str, log: Path) -> set[int]:
    """Return the pids of a node: its slurmd and slurmstepds (they have its log open), its tasks, and all below these."""
    table = {pid: process for pid, process in processes.all_processes().items() if process.state not in ("Z", "X")}
    marks = {f"SLURM_CONF={conf}".encode(), f"SLURMD_NODENAME={node}".encode()}
    seeds = {pid for pid in table if pid != os.getpid() and (_holds(pid, str(log)) or marks <= _environment(pid))}
    return seeds | processes.descendants(seeds, table)


def children_first(pids: set[int]) -> list[int]:
    """Return these processes, each before those that it descends from."""
    table = processes.all_processes()

    def depth(pid: int) -> int:
        count = 0
        while pid in table and count < len(table):
            pid, count = table[pid].parent, count + 1
        return count

    return sorted(pids, key=depth, reverse=True)


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


def _environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def wait_until(condition: Callable[[], object], seconds: float) -> bool:
    """Return whether the condition became true in time."""
    patience = PatientWait(seconds)
    while not condition():
        if patience.over():
            return False
        time.sleep(POLL_S)
    return True
