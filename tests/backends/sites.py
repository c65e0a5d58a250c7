"""The places that the contract of back ends is held against."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cordee
from cordee.job.submit.prepare import Prepared
from cordee.machine.processes import tree as processes
from cordee.runs.folder import RunFolder
from cordee.testing.backends import BackendSite, QueueSite
from cordee.testing.htcondor import DisposablePool
from cordee.testing.slurm import DisposableSlurm

OUTSIDE = Path(__file__).parent / "outside"
SOURCE = Path(cordee.__file__).parents[1]


class Ending(BackendSite):
    """Ends what is left of its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def end(self) -> None:
        for _ in range(2):
            for run in (self.folder / "runs").glob("[!.]*"):
                processes.sweep(f"{run.name}/")


class LocalSite(Ending):
    """This machine."""

    backend = cluster = "local"


class SlurmSite(Ending, QueueSite):
    """The disposable cluster."""

    backend, cluster = "slurm", "slurm"

    def __init__(self, folder: Path, slurm: DisposableSlurm) -> None:
        super().__init__(folder)
        self._slurm = slurm

    def job(self, *args: str, **flags: object) -> Prepared:
        flags.setdefault("need.cpus_per_rank", 1)
        return super().job(*args, **flags)

    @contextmanager
    def full(self) -> Iterator[None]:
        for node in self._slurm.node_names:
            self._slurm.drain(node, "full")
        yield
        for node in self._slurm.node_names:
            self._slurm.resume(node)


class CondorSite(Ending, QueueSite):
    """The disposable pool, whose machines see nothing of the folder of runs."""

    backend, cluster, nodes = "htcondor", "htcondor", 1

    def __init__(self, folder: Path, pool: DisposablePool) -> None:
        super().__init__(folder)
        self._pool = pool

    def there(self, folder: RunFolder) -> RunFolder:
        return RunFolder(next((self._pool.folder / "execute").glob(f"*/dir_*/{folder.id}")))

    def end(self) -> None:
        self._pool.clear()
        super().end()

    @contextmanager
    def full(self) -> Iterator[None]:
        for machine in self._pool.machine_names:
            self._pool.kill_machine(machine)
        yield
        for machine in self._pool.machine_names:
            self._pool.start_machine(machine)


class SpoolSite(Ending, QueueSite):
    """The queue of a package that is not Cordée's; see `outside/`.

    Args:
        folder: for jobs, runs, the queue and the profile of the cluster `shed`.
        environ: what the queue runs with, and whoever submits to it: PYTHONPATH leads to the package.
    """

    backend, cluster = "spool", "shed"

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        super().__init__(folder)
        self.spool = folder / "spool"
        self.spool.mkdir()
        (folder / "shed.toml").write_text('scheduler = "spool"\n')
        self.environ = {**environ, **spool_environment(folder)}
        with open(folder / "queue.log", "ab") as log:
            queue = {**self.environ, "PYTHONPATH": str(OUTSIDE)}
            command = [sys.executable, "-m", "spool.queue"]
            self._queue = subprocess.Popen(command, env=queue, stdout=log, stderr=log, start_new_session=True)

    def end(self) -> None:
        self._queue.kill()
        self._queue.wait()
        super().end()

    @contextmanager
    def full(self) -> Iterator[None]:
        (self.spool / "full").touch()
        yield
        (self.spool / "full").unlink()


def spool_environment(folder: Path) -> dict[str, str]:
    """Return the variables that lead to the package and to its queue."""
    return {
        "SPOOL": str(folder / "spool"),
        "CORDEE_CLUSTERS_PATH": str(folder),
        "PYTHONPATH": os.pathsep.join([str(OUTSIDE), str(SOURCE)]),
    }
