"""Putting a disposable pool up, what tests do to it, and taking it down with everything that belongs to it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from cordee.core.errors import UsageError
from cordee.machine.processes import tree as processes
from cordee.testing.daemons import (
    Daemons,
    cut_power,
    environment_of,
    find_program,
    living_processes,
    removed,
    start_guard,
    wait_until,
)
from cordee.testing.htcondor import programs as installed
from cordee.testing.htcondor.configuration import AS_NOBODY, CLAIMS, PORTS, write_files
from cordee.testing.htcondor.programs import DisposablePoolError, Programs
from cordee.testing.ports import free_ports

WAIT_S = 60.0
_COMMAND_S = 30.0
# Every daemon has it from the master, with the pool's folder; jobs have none of their daemons' variables.
_MARKER = "CORDEE_TESTING_HTCONDOR"
_MASTER = "condor_master"
# Every process of a job has it, wherever it goes.
_SCRATCH = "_CONDOR_SCRATCH_DIR"
_DAEMONS = frozenset(
    f"condor_{name}" for name in ("master", "shared_port", "collector", "negotiator", "schedd", "procd")
)


class DisposablePool:
    """A real HTCondor pool of one's own in a private folder: an access point and execution points, all on loopback.

    The execution points share this machine's kernel and cores, and nothing else but what is not `hidden`: it is valid for
    what a scheduler does, not for speed. Root's pool and its clients are in user namespaces, in which root is nobody.

    Args:
        folder: made by `up`, removed by `down`; missing or empty before.
        machines, cpus, memory_mb, disk_mb, gpus: how many execution points, and what each claims to have; GPUs are names.
        hidden: folders that are empty for jobs, as on machines that share no files.
        settings: lines of the configuration that replace ours.

    Raises:
        UsageError: a number out of range, or a folder whose name HTCondor cannot take.
    """

    def __init__(
        self,
        folder: Path,
        *,
        machines: int = 2,
        cpus: int = 2,
        memory_mb: int = 4096,
        disk_mb: int = 4000,
        gpus: int = 0,
        hidden: Sequence[Path] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = CLAIMS.require_name(folder)
        self.shape = CLAIMS.make(
            machines=machines,
            cpus=cpus,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            gpus=gpus,
            hidden=_outermost([Path(path).resolve() for path in hidden]),
            settings=settings or {},
            port=1,
        )
        self._daemons = Daemons(self.folder)

    @classmethod
    def attach(cls, folder: Path) -> Self:
        """Return the pool that another process has put up in a folder.

        Raises:
            UsageError: there is none.
        """
        shape = CLAIMS.read(Path(folder).absolute())
        found = cls(folder)
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
        """What a person exports to use it: the configuration, and PATH with this pool's commands in front."""
        others = [folder for folder in os.get_exec_path() if folder != str(self.commands)]
        return {"CONDOR_CONFIG": str(self.conf), "PATH": os.pathsep.join([str(self.commands), *others])}

    @property
    def conf(self) -> Path:
        """Its configuration."""
        return self.folder / "condor_config"

    @property
    def commands(self) -> Path:
        """The folder with condor_submit and all other commands, to be put on PATH."""
        return self.folder / "bin"

    @property
    def machine_names(self) -> list[str]:
        """The names of the execution points: node1 to nodeN."""
        return self.shape.machine_names

    def up(self, timeout_s: float = WAIT_S) -> None:
        """Start it and return when it takes jobs and all machines are there; programs are fetched before, if need be.

        Raises:
            DisposablePoolError: it cannot be started, or is not ready in time (with the last words of every log; nothing is
                left of it then).
            UsageError: the folder holds something already, or something cannot be hidden.
        """
        self._remove_what_died()
        found = installed.fetch()
        self._require_hideable(found)
        if os.getuid() == 0 or self.shape.hidden:
            _require_namespaces(mounts=bool(self.shape.hidden))
        CLAIMS.claim(self.folder, self.shape)
        try:
            with free_ports(PORTS) as port:
                self.shape = self.shape.model_copy(update={"port": port})
                CLAIMS.write(self.folder, self.shape)
                write_files(self.folder, self.shape, found)
                self._start_master(found)
                self._wait_until(time.monotonic() + timeout_s, self._is_ready, "it did not take jobs", _MASTER)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End exactly what belongs to it, jobs too, and remove the folder; also after an `up` that was killed."""
        if not CLAIMS.is_claimed(self.folder):
            return
        self.shape = CLAIMS.read(self.folder)
        for path in (self.folder / "off").glob("*"):
            path.unlink()
        self._daemons.end([_MASTER], signal.SIGQUIT)  # a fast shutdown: jobs are killed
        if not cut_power(self._processes):
            raise DisposablePoolError("processes of the pool did not die", given=str(self.folder))
        wait_until(lambda: removed(self.folder), WAIT_S)

    def living(self) -> list[str]:
        """Return the names of its daemons that live: collector, master, negotiator, node1, ..., schedd, shared_port."""
        return sorted(set(self._living_daemons().values()))

    def command(self, *argv: str) -> str:
        """Run a command of HTCondor on this pool and return what it prints.

        Raises:
            DisposablePoolError: it failed.
        """
        try:
            done = subprocess.run(
                [str(self.commands / argv[0]), *argv[1:]],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_COMMAND_S,
                check=False,
                env={**_clean_environment(), **self.env},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DisposablePoolError(f"{argv[0]} failed: {error}", given=" ".join(argv)) from None
        if done.returncode != 0:
            raise DisposablePoolError(f"{argv[0]} failed: {done.stderr.strip()}", given=" ".join(argv))
        return done.stdout

    def words(self) -> str:
        """Return what the pool says of all jobs and machines, and the last words in the daemons' logs."""
        said = []
        for asked in (["condor_q", "-nobatch"], ["condor_status"]):
            try:
                said.append(self.command(*asked))
            except DisposablePoolError as error:
                said.append(str(error))
        return "\n".join([*said, self._daemons.tails()])

    def kill_machine(self, name: str) -> None:
        """Kill an execution point as a power cut does: condor_startd, its starters, jobs and everything below them.

        None sees another die. The machine is off until `start_machine`; the pool only learns of it when leases end.
        """
        (self.folder / "off" / self._require_machine(name)).touch()
        if not cut_power(lambda: self.processes_of(name)):
            raise DisposablePoolError(f"processes of {name} did not die", given=str(self.folder))

    def start_machine(self, name: str) -> None:
        """Start an execution point that was killed, and wait until the pool has it back."""
        off = self.folder / "off" / self._require_machine(name)
        if not off.exists() and name in self.living():
            return
        began = int(time.time())
        off.unlink(missing_ok=True)

        def is_back() -> bool:
            return self._machine_starts().get(name, 0) >= began

        self._wait(is_back, f"{name} did not come back")

    def kill_schedd(self) -> None:
        """Kill the access point's condor_schedd by signal 9; the master starts it again after some seconds."""
        killed = {pid for pid, name in self._living_daemons().items() if name == "schedd"}
        processes.kill_all(killed)
        self._wait(lambda: not killed & set(self._living_daemons()), "condor_schedd did not die")

    def wait_ready(self, timeout_s: float = WAIT_S) -> None:
        """Wait until it takes jobs and all machines are there.

        Raises:
            DisposablePoolError: not in time.
        """
        self._wait_until(time.monotonic() + timeout_s, self._is_ready, "it did not take jobs", _MASTER)

    def clear(self) -> None:
        """Remove all jobs and wait until none is left in the queue, also those on machines that are lost.

        Raises:
            DisposablePoolError: some do not go.
        """

        def has_no_jobs() -> bool:
            if not self._jobs():
                return True
            # What is only removed waits for its machine's word, and a lost machine says none until the lease ends.
            for asked in (["condor_rm", "-all"], ["condor_rm", "-forcex", "-all"]):
                self._try(*asked)
            return not self._jobs()

        self._wait(has_no_jobs, "its jobs did not go")

    def heal(self) -> list[str]:
        """Put right what faults have left; return what was wrong, empty when nothing was.

        Raises:
            DisposablePoolError: it cannot be put right.
        """
        living = self.living()
        dead = [name for name in ("schedd", *self.machine_names) if name not in living]
        for name in dead:
            if name in self.machine_names:
                self.start_machine(name)
        self.wait_ready()
        return [f"{name} was dead" for name in dead]

    def processes_of(self, machine: str) -> set[int]:
        """Return the pids of a machine: its condor_startd, all below it, and what its jobs have left elsewhere."""
        return self._with_descendants(
            [pid for pid, name in self._living_daemons().items() if name == machine], f"{machine}/"
        )

    def _processes(self) -> set[int]:
        """Return the pids of all that belongs to it."""
        return self._with_descendants(self._marked(), "")

    def _with_descendants(self, daemons: Iterable[int], below: str) -> set[int]:
        """Return daemons, all below them, and processes of jobs in the folders of this name below that of execution."""
        table = living_processes()
        scratch = f"{_SCRATCH}={self.folder}/execute/{below}".encode()
        seeds = set(daemons) | {pid for pid in table if any(word.startswith(scratch) for word in environment_of(pid))}
        return (seeds | processes.descendants(seeds, table)) & set(table) - {os.getpid()}

    def _marked(self) -> list[int]:
        mark = f"{_MARKER}={self.folder}".encode()
        return [pid for pid in living_processes() if mark in environment_of(pid)]

    def _living_daemons(self) -> dict[int, str]:
        """Return the daemons by pid, each by its name: a machine's, else the program's without `condor_`."""
        found = {}
        for pid in self._marked():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            program = os.path.basename(words[0])
            if program == "condor_startd" and "-local-name" in words:
                found[pid] = words[words.index("-local-name") + 1]
            elif program in _DAEMONS:
                found[pid] = program.removeprefix("condor_")
        return found

    def _start_master(self, found: Programs) -> None:
        argv = [str(found.sbin / _MASTER), "-f"]
        if os.getuid() == 0:
            argv = [str(find_program(AS_NOBODY[0])), *AS_NOBODY[1:], *argv]
        env = {**_clean_environment(), "CONDOR_CONFIG": str(self.conf), _MARKER: str(self.folder)}
        self._daemons.start(_MASTER, argv, env)

    def _is_ready(self) -> bool:
        return set(self.machine_names) <= set(self._machine_starts()) and self._takes_jobs()

    def _takes_jobs(self) -> bool:
        try:
            self.command("condor_q", "-totals")
        except DisposablePoolError:
            return False
        return "access@" in self._try("condor_status", "-schedd", "-af", "Name")

    def _machine_starts(self) -> dict[str, int]:
        """Return when each machine that the pool knows was started, in seconds since 1970."""
        found: dict[str, int] = {}
        for line in self._try("condor_status", "-af", "Name", "DaemonStartTime").splitlines():
            name, _, start = line.partition(" ")
            # slot1@node1@HOST, and slot1_1@node1@HOST while a job is on it: a lost one is known for a while.
            machine = name.split("@")[1] if name.count("@") == 2 else name
            if start.isdigit():
                found[machine] = max(found.get(machine, 0), int(start))
        return found

    def _jobs(self) -> list[str]:
        return self.command("condor_q", "-allusers", "-af", "ClusterId", "ProcId").split()

    def _try(self, *argv: str) -> str:
        """Return what a command prints, nothing when it fails."""
        try:
            return self.command(*argv)
        except DisposablePoolError:
            return ""

    def _remove_what_died(self) -> None:
        if not CLAIMS.is_claimed(self.folder):
            return
        earlier = self.attach(self.folder)
        if earlier.living():
            raise CLAIMS.refuse_living(self.folder)
        earlier.down()

    def _require_machine(self, name: str) -> str:
        if name not in self.machine_names:
            raise UsageError("the pool has no such machine", given=name, allowed=self.machine_names)
        return name

    def _require_hideable(self, found: Programs) -> None:
        for hidden in self.shape.hidden:
            if not hidden.is_dir():
                raise UsageError("only a folder that is there can be hidden from jobs", given=str(hidden))
            for needed in (self.folder.resolve(), found.release.resolve()):
                if needed.is_relative_to(hidden):
                    raise UsageError(
                        "jobs need what lies in a folder that is to be hidden from them",
                        given=f"{hidden}, with {needed} below it",
                        next="put the pool into a folder outside, or set XDG_CACHE_HOME to one for HTCondor's programs",
                    )

    def _wait(self, condition: Callable[[], object], problem: str) -> None:
        self._wait_until(time.monotonic() + WAIT_S, condition, problem, _MASTER)

    def _wait_until(self, deadline: float, condition: Callable[[], object], problem: str, needed: str) -> None:
        """Wait for a condition; a needed daemon that dies ends the wait at once."""
        dead: list[str] = []

        def settled() -> bool:
            dead[:] = [] if self._daemons.pid(needed) else [needed]
            return bool(condition()) or bool(dead)

        if wait_until(settled, max(0.0, deadline - time.monotonic())) and not dead:
            return
        why = f"{problem}: {needed} ended" if dead else f"{problem} in time"
        raise DisposablePoolError(
            f"the disposable HTCondor pool failed: {why}\n{self._daemons.tails()}", given=str(self.folder)
        )


def _outermost(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return the folders that lie in none of the others: what lies in a hidden one is not there to be hidden."""
    found: list[Path] = []
    for folder in sorted(set(folders)):
        if not any(folder.is_relative_to(other) for other in found):
            found.append(folder)
    return tuple(found)


def _clean_environment() -> dict[str, str]:
    """Return this process' environment without what is about another pool, or the job that this is in."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(("CONDOR_", "_CONDOR_"))}


def _require_namespaces(mounts: bool) -> None:
    """Raise DisposablePoolError where no user namespace can be made, or nothing mounted in it."""
    command = [*AS_NOBODY] if os.getuid() == 0 else []
    if mounts:
        command += ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
        command += ["sh", "-c", "mount -t tmpfs none /tmp && exec setpriv --ambient-caps=-all true"]
    else:
        command += ["true"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        said, code = done.stderr.strip(), done.returncode
    except OSError as error:
        said, code = str(error), 1
    if code != 0:
        why = "hiding folders from jobs needs" if mounts else "HTCondor takes no jobs from root, so root's pool needs"
        raise DisposablePoolError(
            f"{why} user namespaces, and none can be made here: {said}",
            given=" ".join(command[:4]),
            next="allow unprivileged user namespaces (sysctl user.max_user_namespaces), or call it as an ordinary user"
            + (" without hidden folders" if mounts else ""),
        )
