"""The disposable cluster: up, down, and the faults that tests put into it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cordee.errors import UsageError
from cordee.node import processes
from cordee.slurm import SlurmError, parse_records, run_command
from cordee.testing.slurm import accounting as database
from cordee.testing.slurm.configuration import PARTITIONS, Shape, gres_conf, slurm_conf
from cordee.testing.slurm.daemons import (
    Daemons,
    DisposableSlurmError,
    node_processes,
    require_programs,
    wait_until,
)
from cordee.testing.slurm.ports import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol")
_RECORD = "cluster.json"
_COMMAND_S = 10.0
_WAIT_S = 60.0
_CANCEL_S = 6.0
# A path of a Unix socket has at most 107 bytes; `/munge/socket` and slurmstepd's sockets are appended to the folder.
_LONGEST_FOLDER = 60
_NO_PROLOG = "#!/bin/sh\nexit 0\n"
_READY = frozenset(["IDLE", "MIXED", "ALLOCATED", "COMPLETING"])


class DisposableSlurm:
    """A real Slurm of one's own in a private folder: unprivileged, with munge, many slurmd on one machine.

    Nodes share this machine's kernel, file system and cores: it is valid for what a scheduler does, not for speed.

    Args:
        folder: made by `up`, removed by `down`; missing or empty before.
        nodes, cpus, memory_mb, gpus: how many nodes, and what each claims to have; GPUs are devices nobody can open.
        accounting: also slurmdbd with MariaDB, and the account `research`.
        partitions: name to settings; default: `normal` without a limit, and `debug` (30 min), which preempts it.
        settings: lines of slurm.conf that replace ours.
        base_port: the first of `nodes` + 2 ports; default: free ones.

    Raises:
        UsageError: a number out of range, or a folder whose name Slurm cannot take.
    """

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
        base_port: int | None = None,
    ) -> None:
        self.folder = _require_folder_name(folder)
        self.shape = _shape(
            nodes=nodes,
            cpus=cpus,
            memory_mb=memory_mb,
            gpus=gpus,
            accounting=accounting,
            partitions=PARTITIONS if partitions is None else partitions,
            settings=settings or {},
            port=base_port or 1,
        )
        self._base_port = base_port
        self._daemons = Daemons(self.folder)

    @classmethod
    def attach(cls, folder: Path) -> DisposableSlurm:
        """Return the cluster that another process has put up in a folder.

        Raises:
            UsageError: there is none.
        """
        path = Path(folder).absolute() / _RECORD
        try:
            shape = Shape.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            raise UsageError(
                "no disposable Slurm lies here",
                given=str(folder),
                allowed="a folder in which `cordee testing slurm up` was called",
                next=f"cordee testing slurm up {folder}",
            ) from None
        found = cls(folder, base_port=shape.port)
        found.shape = shape
        return found

    @property
    def env(self) -> dict[str, str]:
        """What a person exports to use it."""
        return {"SLURM_CONF": str(self.conf)}

    @property
    def conf(self) -> Path:
        """Its slurm.conf."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes: n1 to nN."""
        return self.shape.node_names

    def __enter__(self) -> DisposableSlurm:
        self.up()
        return self

    def __exit__(self, *error: object) -> None:
        self.down()

    # Life

    def up(self, timeout_s: float = _WAIT_S) -> None:
        """Start it and return when the controller answers and all nodes are idle.

        Raises:
            DisposableSlurmError: programs are missing, or it is not ready in time (with the last words of every log;
                nothing is left of it then).
            UsageError: the folder holds something already.
        """
        require_programs(PROGRAMS + (database.PROGRAMS if self.shape.accounting else ()))
        self._claim_folder()
        try:
            with free_ports(self.shape.ports, self._base_port) as port:
                self.shape = self.shape.model_copy(update={"port": port})
                self._write_files()
                self._start_all(time.monotonic() + timeout_s)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Cancel its jobs, end exactly what belongs to it and remove the folder; also after an `up` that was killed."""
        if not (self.folder / _RECORD).exists():
            return
        if self._daemons.pid("slurmctld"):
            self._cancel_all()
        living = self._daemons.living()
        for node in self.node_names:
            processes.kill_all(self._processes(node) - {self._daemons.pid(node)})
        for last in ({"munged", "mariadbd"}, {"mariadbd"}, set()):
            self._daemons.end([name for name in living if name not in last])
        for node in self.node_names:
            processes.kill_all(self._processes(node))
        shutil.rmtree(self.folder)

    def living(self) -> list[str]:
        """Return the names of its daemons that live: munged, slurmctld, n1, ..."""
        return self._daemons.living()

    def clear(self) -> None:
        """Cancel all jobs and wait until none is left.

        Raises:
            DisposableSlurmError: some do not go.
        """
        self._cancel_all()
        self._wait(lambda: not self._squeue(), _WAIT_S, "its jobs did not end")

    def heal(self) -> list[str]:
        """Put right what faults have left: daemons, nodes, the Prolog; return what was wrong, empty when nothing was."""
        self.set_prolog(None)
        dead = [name for name in ("slurmctld", *self.node_names) if not self._daemons.pid(name)]
        if "slurmctld" in dead:
            self.start_controller()
        self._start_nodes([name for name in dead if name != "slurmctld"])
        self._wait(self._all_known, _WAIT_S, "its nodes did not register")
        faults = [f"{name} was dead" for name in dead]
        for node, state in self.states().items():
            if {"DRAIN", "FAIL", "FAILING"} & _words(state) or ("DOWN" in _words(state) and node not in dead):
                faults.append(f"{node} was {state}")
                self._resume(node)
        self._wait(lambda: all(map(_is_ready, self.states().values())), _WAIT_S, "its nodes did not come back")
        return faults

    # Questions

    def command(self, *argv: str) -> str:
        """Run a Slurm command on this cluster and return what it prints.

        Raises:
            SlurmError: it failed.
        """
        return run_command(argv, timeout_s=_COMMAND_S, env={**os.environ, **self.env})

    def states(self) -> dict[str, str]:
        """Return the state of each node in Slurm's words, as `IDLE`, `DOWN*+DRAIN`; empty while no controller answers."""
        return {record["NodeName"]: record["State"] for record in self._node_records()}

    # Faults

    def stop_controller(self) -> None:
        """End slurmctld; it keeps its state."""
        self._daemons.end(["slurmctld"])

    def start_controller(self) -> None:
        """Start slurmctld with the state that it left, and wait until it answers."""
        if not self._daemons.pid("slurmctld"):
            self._daemons.start("slurmctld", ["slurmctld", "-D"], self.env)
        self._wait(self._answers, _WAIT_S, "the controller did not answer", "slurmctld")

    def kill_slurmd(self, node: str) -> None:
        """Kill a node's slurmd by signal 9; its jobs run on."""
        self._daemons.end([self._require_node(node)], signal.SIGKILL)

    def kill_node(self, node: str) -> None:
        """Kill a node as a power cut does: slurmd first, then its slurmstepds and everything below them."""
        self.kill_slurmd(node)

        def gone() -> bool:
            left = self._processes(node)
            processes.kill_all(left)
            return not left

        self._wait(gone, _WAIT_S, f"processes of {node} did not die")

    def start_node(self, node: str) -> None:
        """Start a node's slurmd and wait until the controller has it back."""
        self._start_nodes([self._require_node(node)])

    def drain(self, node: str, reason: str) -> None:
        """Let a node take no new jobs."""
        self._update(node, "DRAIN", f"Reason={reason}")

    def resume(self, node: str) -> None:
        """Let a node that was drained or down take jobs again."""
        self._resume(self._require_node(node))

    def set_prolog(self, script: str | None) -> None:
        """Run this shell script on every node before a job's first process there; None takes it away."""
        text = _NO_PROLOG if script is None else script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
        path = self.folder / "bin" / "prolog"
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(path)

    # Inside

    def _claim_folder(self) -> None:
        if (self.folder / _RECORD).exists():
            earlier = DisposableSlurm.attach(self.folder)
            if earlier.living():
                raise UsageError(
                    "a disposable Slurm is up here already",
                    given=str(self.folder),
                    next=f'use it: eval "$(cordee testing slurm env {self.folder})"; or end it: cordee testing slurm down {self.folder}',
                )
            earlier.down()
        if self.folder.exists() and any(self.folder.iterdir()):
            raise UsageError("a disposable Slurm wants a folder of its own", given=f"{self.folder} is not empty")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._write_record()

    def _write_record(self) -> None:
        fresh = self.folder / f"{_RECORD}.new"
        fresh.write_text(self.shape.model_dump_json(indent=2))
        fresh.replace(self.folder / _RECORD)

    def _write_files(self) -> None:
        self._write_record()
        for name in (
            "etc",
            "state",
            "log",
            "pid",
            "munge",
            "bin",
            *(f"{kind}/{node}" for kind in ("spool", "tmp") for node in self.node_names),
        ):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge" / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        self.set_prolog(None)
        self.conf.write_text(slurm_conf(self.folder, self.shape))
        self.conf.with_name("gres.conf").write_text(gres_conf(self.folder, self.shape))
        self.conf.with_name("cgroup.conf").write_text("CgroupAutomount=no\n")
        if self.shape.accounting:
            path = self.conf.with_name("slurmdbd.conf")
            path.touch(0o600)
            path.write_text(database.slurmdbd_conf(self.folder, self.shape))

    def _start_all(self, deadline: float) -> None:
        munge = self.folder / "munge"
        options = [f"--key-file={munge}/key", f"--socket={munge}/socket", f"--seed-file={munge}/seed"]
        files = [f"--pid-file={munge}/pid", f"--log-file={self.folder}/log/munged.log"]
        self._daemons.start("munged", ["munged", "--foreground", "--force", "--num-threads=4", *options, *files], {})
        self._wait_until(deadline, (munge / "socket").exists, "munged did not start", "munged")
        if self.shape.accounting:
            self._start_accounting(deadline)
        self._daemons.start("slurmctld", ["slurmctld", "-D", "-i"], self.env)
        self._wait_until(deadline, self._answers, "the controller did not answer", "slurmctld")
        self._start_slurmds(self.node_names)
        self._wait_until(deadline, self._all_idle, "not all nodes became idle", "slurmctld", *self.node_names)

    def _start_accounting(self, deadline: float) -> None:
        database.make_database(self.folder)
        socket = self.folder / "database" / "socket"
        self._daemons.start("mariadbd", database.mariadb_command(self.folder), {})
        self._wait_until(deadline, socket.exists, "MariaDB did not start", "mariadbd")
        self._daemons.start("slurmdbd", ["slurmdbd", "-D"], {**self.env, "MYSQL_UNIX_PORT": str(socket)})
        self._wait_until(deadline, self._accounts, "slurmdbd did not answer", "slurmdbd")
        database.add_associations(self.shape.settings.get("ClusterName", "disposable"), {**os.environ, **self.env})

    def _start_slurmds(self, nodes: list[str]) -> None:
        for node in nodes:
            self._daemons.start(node, ["slurmd", "-D", "-N", node], self.env)

    def _start_nodes(self, nodes: list[str]) -> None:
        dead = [node for node in nodes if not self._daemons.pid(node)]
        began = time.strftime("%Y-%m-%dT%H:%M:%S")
        self._start_slurmds(dead)

        def registered() -> bool:
            starts = {record["NodeName"]: record["SlurmdStartTime"] for record in self._node_records()}
            return all(starts.get(node, "")[:1].isdigit() and starts[node] >= began for node in dead)

        if dead and self._daemons.pid("slurmctld"):
            self._wait(registered, _WAIT_S, f"{', '.join(dead)} did not come back", *dead)

    def _node_records(self) -> list[dict[str, str]]:
        try:
            return parse_records(self.command("scontrol", "show", "nodes", "--oneliner"))
        except SlurmError:
            return []

    def _all_known(self) -> bool:
        states = self.states()
        return bool(states) and not any("UNKNOWN" in _words(state) for state in states.values())

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

    def _squeue(self) -> list[str]:
        return self.command("squeue", "--noheader", "--format=%A").split()

    def _cancel_all(self) -> None:
        try:
            jobs = self._squeue()
            if jobs:
                self.command("scancel", "--quiet", *jobs)
            wait_until(lambda: not self._squeue(), _CANCEL_S)
        except SlurmError:
            return

    def _processes(self, node: str) -> set[int]:
        return node_processes(self.conf, node, self.folder / "log" / f"{node}.log")

    def _resume(self, node: str) -> None:
        self._update(node, "RESUME")

    def _update(self, node: str, state: str, *more: str) -> None:
        self.command("scontrol", "update", f"NodeName={self._require_node(node)}", f"State={state}", *more)

    def _require_node(self, node: str) -> str:
        if node not in self.node_names:
            raise UsageError("the cluster has no such node", given=node, allowed=self.node_names)
        return node

    def _wait(self, condition: Callable[[], object], seconds: float, problem: str, *needed: str) -> None:
        self._wait_until(time.monotonic() + seconds, condition, problem, *needed)

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


def _words(state: str) -> set[str]:
    return set(state.replace("*", "").replace("~", "").replace("#", "").split("+"))


def _is_ready(state: str) -> bool:
    return "*" not in state and _words(state) <= _READY


def _shape(**values: Any) -> Shape:
    try:
        return Shape(**values)
    except ValidationError as error:
        fault = error.errors()[0]
        name = ".".join(str(part) for part in fault["loc"])
        raise UsageError(f"{name} of a disposable Slurm: {fault['msg']}", given=fault["input"]) from None


def _require_folder_name(folder: Path) -> Path:
    path = Path(folder).absolute()
    if len(os.fsencode(path)) > _LONGEST_FOLDER or any(char in str(path) for char in " \t\n#\"'\\,=%[]"):
        raise UsageError(
            "Slurm cannot work in a folder of this name",
            given=str(path),
            allowed=f"at most {_LONGEST_FOLDER} bytes, without blanks, quotes, brackets and # , = % \\",
            next="give a shorter folder, for example below /tmp",
        )
    return path
