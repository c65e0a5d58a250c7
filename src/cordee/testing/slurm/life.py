"""Putting a disposable cluster up, and taking it down with everything that belongs to it."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from cordee.backends.slurm.node.commands import SlurmError, parse_records, run_command
from cordee.core.errors import UsageError
from cordee.machine.processes import tree as processes
from cordee.testing.daemons import removed, start_guard, wait_until
from cordee.testing.ports import free_ports
from cordee.testing.slurm import accounting as database
from cordee.testing.slurm.configuration import PARTITIONS
from cordee.testing.slurm.daemons import (
    DisposableSlurmError,
    SlurmDaemons,
    clean_environment,
    node_processes,
    packages_of,
    require_programs,
)
from cordee.testing.slurm.files import CLAIMS, PROGRAMS, write_files

# The variable that names the Debian suite whose Slurm is meant where none is given.
SUITE = "CORDEE_SLURM_SUITE"
_NEEDED = ("munged", "slurmctld", "slurmd", "scontrol")
WAIT_S = 60.0
_COMMAND_S = 10.0
_CANCEL_S = 6.0


class Cluster:
    """A private Slurm with munge and many slurmd, that is up or not; see `DisposableSlurm`."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 4,
        cpus: int = 8,
        memory_mb: int = 16000,
        gpus: int = 0,
        accounting: bool = False,
        partitions: Mapping[str, Mapping[str, str]] | None = None,
        settings: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        suite: str | None = None,
        base_port: int | None = None,
    ) -> None:
        self.folder = CLAIMS.require_name(folder)
        suite = os.environ.get(SUITE, "") if suite is None else suite
        if not re.fullmatch("[a-z]*", suite):
            what = f"name one after --suite, or in {SUITE}"
            raise UsageError(
                "no Debian suite has such a name", given=suite, allowed="small letters, as trixie", next=what
            )
        self.shape = CLAIMS.make(
            nodes=nodes,
            cpus=cpus,
            memory_mb=memory_mb,
            gpus=gpus,
            accounting=accounting,
            partitions=PARTITIONS if partitions is None else partitions,
            settings=settings or {},
            files=files or {},
            suite=suite,
            port=base_port or 1,
        )
        self._base_port = base_port
        self._daemons = SlurmDaemons(self.folder)

    @classmethod
    def attach(cls, folder: Path) -> Self:
        """Return the cluster that another process has put up in a folder.

        Raises:
            UsageError: there is none.
        """
        shape = CLAIMS.read(Path(folder).absolute())
        found = cls(folder, base_port=shape.port)
        found.shape = shape
        return found

    def __enter__(self) -> Self:
        """Put it up; it goes with this process, even if that is killed. What `up` alone starts stays until `down`."""
        self._guard = start_guard(type(self), self.folder)
        try:
            self.up()
        except BaseException:
            self._guard.communicate()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.down()
        finally:
            self._guard.communicate()

    @property
    def env(self) -> dict[str, str]:
        """What a person exports to use it."""
        env = {"SLURM_CONF": str(self.conf)}
        if self.shape.suite:
            env["PATH"] = f"{self.folder / PROGRAMS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return env

    @property
    def conf(self) -> Path:
        """Its slurm.conf."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes: n1 to nN."""
        return self.shape.node_names

    def up(self, timeout_s: float = WAIT_S) -> None:
        """Start it and return when the controller answers and all nodes are idle.

        Raises:
            DisposableSlurmError: programs are missing, or it is not ready in time (with the last words of every log;
                nothing is left of it then).
            UsageError: the folder holds something already.
        """
        needed = database.PROGRAMS if self.shape.accounting else ()
        if self.shape.suite:
            packages_of(self.shape.suite).fetch()
        else:
            needed = (*_NEEDED, *(["slurmdbd"] if self.shape.accounting else []), *needed)
        require_programs(needed)
        self._remove_what_died()
        CLAIMS.claim(self.folder, self.shape)
        try:
            with free_ports(self.shape.ports, self._base_port) as port:
                self.shape = self.shape.model_copy(update={"port": port})
                CLAIMS.write(self.folder, self.shape)
                write_files(self.folder, self.shape)
                self._start_all(time.monotonic() + timeout_s)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Cancel its jobs, end exactly what belongs to it and remove the folder; also after an `up` that was killed."""
        if not CLAIMS.is_claimed(self.folder):
            return
        self.shape = CLAIMS.read(self.folder)
        if self._daemons.pid("slurmctld"):
            self._cancel_jobs()
        for node in self.node_names:
            processes.kill_all(self.processes_of(node) - {self._daemons.pid(node)})
        living = self._daemons.living()
        for last in ({"munged", "mariadbd"}, {"mariadbd"}, set()):  # the others need these to end well
            self._daemons.end([name for name in living if name not in last])
        for node in self.node_names:
            processes.kill_all(self.processes_of(node))
        wait_until(lambda: removed(self.folder), WAIT_S)

    def living(self) -> list[str]:
        """Return the names of its daemons that live: munged, slurmctld, n1, ..."""
        return self._daemons.living()

    def command(self, *argv: str) -> str:
        """Run a Slurm command on this cluster and return what it prints.

        Raises:
            SlurmError: it failed.
        """
        return run_command(argv, timeout_s=_COMMAND_S, env={**clean_environment(), **self.env})

    def words(self) -> str:
        """Return what the controller says of all jobs and nodes, and the last words in the daemons' logs."""
        said = []
        for asked in (["squeue", "--states=all"], ["scontrol", "show", "node", "--oneliner"]):
            try:
                said.append(self.command(*asked))
            except SlurmError as error:
                said.append(str(error))
        return "\n".join([*said, self._daemons.tails()])

    def states(self) -> dict[str, str]:
        """Return the state of each node in Slurm's words, as `IDLE`, `DOWN*+DRAIN`; empty while no controller answers."""
        return {record["NodeName"]: record["State"] for record in self._node_records()}

    def _remove_what_died(self) -> None:
        if not CLAIMS.is_claimed(self.folder):
            return
        earlier = self.attach(self.folder)
        if earlier.living():
            raise CLAIMS.refuse_living(self.folder)
        earlier.down()

    def _start_munge(self, deadline: float) -> None:
        munge = self.folder / "munge"
        options = [f"--key-file={munge}/key", f"--socket={munge}/socket", f"--seed-file={munge}/seed"]
        options.append(f"--pid-file={munge}/pid")
        # One that was killed has left its socket, which says nothing of the next.
        (munge / "socket").unlink(missing_ok=True)
        self._daemons.start("munged", ["munged", "--foreground", "--force", "--num-threads=4", *options], self.env)
        self._wait_until(deadline, (munge / "socket").exists, "munged did not start", "munged")

    def _start_all(self, deadline: float) -> None:
        self._start_munge(deadline)
        if self.shape.accounting:
            self._start_accounting(deadline)
        self._daemons.start("slurmctld", ["slurmctld", "-D", "-i"], self.env)
        self._wait_until(deadline, self._answers, "the controller did not answer", "slurmctld")
        self._start_slurmds(self.node_names)
        self._wait_until(deadline, self._all_idle, "not all nodes became idle", "slurmctld", *self.node_names)

    def _start_accounting(self, deadline: float) -> None:
        setup = "mariadb-install-db"
        (self.folder / "database").mkdir()
        self._daemons.start(setup, database.install_command(self.folder), {})
        self._wait_until(deadline, lambda: self._daemons.pid(setup) is None, "MariaDB was not set up")
        socket = self.folder / "database" / "socket"
        self._daemons.start("mariadbd", database.mariadb_command(self.folder), {})
        self._wait_until(deadline, socket.exists, "MariaDB did not start", "mariadbd")
        self._daemons.start("slurmdbd", ["slurmdbd", "-D"], {**self.env, "MYSQL_UNIX_PORT": str(socket)})
        self._wait_until(deadline, self._accounts, "slurmdbd did not answer", "slurmdbd")
        database.add_associations(self.shape.settings.get("ClusterName", "disposable"), self.command)

    def _start_slurmds(self, nodes: list[str]) -> None:
        stepd = ["-d", str(self.folder / PROGRAMS / "slurmstepd")] if self.shape.suite else []
        for node in nodes:
            self._daemons.start(node, ["slurmd", "-D", "-N", node, *stepd], self.env)

    def _node_records(self) -> list[dict[str, str]]:
        try:
            return parse_records(self.command("scontrol", "show", "nodes", "--oneliner"))
        except SlurmError:
            return []

    def _all_idle(self) -> bool:
        states = self.states()
        return bool(states) and all(state == "IDLE" for state in states.values())

    def _answers(self) -> bool:
        try:
            return "is UP" in self.command("scontrol", "ping")
        except SlurmError:
            return False

    def _accounts(self) -> bool:
        try:
            self.command("sacctmgr", "--noheader", "show", "cluster")
        except SlurmError:
            return False
        return True

    def _jobs(self) -> list[str]:
        """Return what scancel takes for each job; a heterogeneous job goes only as a whole, by its first part."""
        shown = self.command("squeue", "--noheader", "--format=%i").split()
        return sorted({job.partition("+")[0] for job in shown})

    def _cancel_jobs(self) -> None:
        try:
            wait_until(self._has_no_jobs, _CANCEL_S)
        except SlurmError:
            return  # what they have left is killed

    def _has_no_jobs(self) -> bool:
        """Cancel all jobs, and return whether there were none: one that ends may be requeued by then."""
        jobs = self._jobs()
        if jobs:
            # A job that is cancelled while slurmd begins it may be requeued half a minute later.
            with contextlib.suppress(SlurmError):
                self.command("scontrol", "update", f"JobId={','.join(jobs)}", "Requeue=0")
            self.command("scancel", "--quiet", *jobs)
            # What is only asked to end takes its time to end well.
            for node in self.node_names:
                processes.kill_all(self.processes_of(node) - {self._daemons.pid(node)})
        return not jobs

    def processes_of(self, node: str) -> set[int]:
        """Return the pids of a node's daemons, and of everything that they have started."""
        return node_processes(self.conf, node, self.folder / "log" / f"{node}.log")

    def _wait(self, condition: Callable[[], object], problem: str, *needed: str) -> None:
        self._wait_until(time.monotonic() + WAIT_S, condition, problem, *needed)

    def _wait_until(self, deadline: float, condition: Callable[[], object], problem: str, *needed: str) -> None:
        """Wait for a condition; a needed daemon that dies ends the wait at once."""
        dead: list[str] = []

        def settled() -> bool:
            dead[:] = [name for name in needed if self._daemons.pid(name) is None]
            return bool(condition()) or bool(dead)

        if wait_until(settled, max(0.0, deadline - time.monotonic())) and not dead:
            return
        why = f"{problem}: {', '.join(dead)} ended" if dead else f"{problem} in time"
        raise DisposableSlurmError(
            f"the disposable Slurm failed: {why}\n{self._daemons.tails()}", given=str(self.folder)
        )
