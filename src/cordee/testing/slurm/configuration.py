"""The text of slurm.conf and gres.conf of a disposable cluster."""

from __future__ import annotations

import os
import pwd
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from cordee.testing.slurm.daemons import DisposableSlurmError, plugin_folder

PARTITIONS: dict[str, dict[str, str]] = {
    "normal": {"Default": "YES", "MaxTime": "INFINITE", "PriorityTier": "1"},
    "debug": {"MaxTime": "30", "PriorityTier": "10"},  # takes nodes from jobs of `normal`, which are requeued
}
# The major number of devices that no driver of a test machine has: 1:3 and the like would hide real devices.
_DEVICE_MAJOR = 240


class SlurmShape(BaseModel):
    """What a cluster is made of; kept in its folder as cluster.json.

    Attributes:
        nodes, cpus, memory_mb, gpus: how many nodes, and what each has.
        accounting: with slurmdbd and MariaDB.
        partitions: name of a partition to the settings of its line in slurm.conf.
        settings: lines of slurm.conf that replace ours.
        files: more files beside slurm.conf, name to text, as cgroup.conf or topology.conf.
        suite: the Debian suite whose Slurm it is; empty: what is installed.
        port: the first of the ports (controller, database daemon, then one per node).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_name: str = "cordee.testing.slurm/1"
    nodes: int = Field(ge=1, le=256)
    cpus: int = Field(ge=1)
    memory_mb: int = Field(ge=1)
    gpus: int = Field(ge=0, le=64)
    accounting: bool
    partitions: Mapping[str, Mapping[str, str]]
    settings: Mapping[str, str]
    files: Mapping[str, str]
    suite: str = Field(default="", pattern=r"^[a-z]*$")
    port: int = Field(ge=1, le=65535)

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes: n1 to nN."""
        return [f"n{index + 1}" for index in range(self.nodes)]

    @property
    def database_port(self) -> int:
        """The port of slurmdbd."""
        return self.port + 1

    @property
    def ports(self) -> int:
        """How many ports in a row it takes."""
        return self.nodes + 2


def host_name() -> str:
    """Return this machine's name as Slurm's daemons look for it."""
    return socket.gethostname().split(".")[0]


def user_name() -> str:
    """Return the user that the cluster belongs to.

    Raises:
        DisposableSlurmError: the user has no entry in the system's list; Slurm refuses nameless users.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise DisposableSlurmError(
            "Slurm needs a user with a name",
            given=f"uid {os.getuid()}",
            next="run as a user that `getent passwd` lists",
        ) from None


def slurm_conf(folder: Path, shape: SlurmShape) -> str:
    """Return the text of slurm.conf."""
    values = _defaults(folder, shape.port)
    values |= _accounting(folder, shape) if shape.accounting else {"AccountingStorageType": "accounting_storage/none"}
    if shape.suite:
        values["PluginDir"] = plugin_folder(shape.suite)
    replaced = {key.lower() for key in shape.settings}
    lines = [f"{key}={value}" for key, value in values.items() if key.lower() not in replaced]
    lines += [f"{key}={value}" for key, value in shape.settings.items()]
    first = shape.port + 2
    lines.append(
        f"NodeName=n[1-{shape.nodes}] NodeHostname={host_name()} NodeAddr=127.0.0.1 Port=[{first}-{first + shape.nodes - 1}]"
        f" CPUs={shape.cpus} Sockets=1 CoresPerSocket={shape.cpus} ThreadsPerCore=1 RealMemory={shape.memory_mb}"
        + (f" Gres=gpu:{shape.gpus}" if shape.gpus else "")
        + " State=UNKNOWN"
    )
    for name, given in shape.partitions.items():
        settings = {"Nodes": "ALL", "State": "UP", **given}
        lines.append(" ".join([f"PartitionName={name}", *(f"{key}={value}" for key, value in settings.items())]))
    return "\n".join(lines) + "\n"


def _defaults(folder: Path, port: int) -> dict[str, str]:
    user = user_name()
    return {
        "ClusterName": "disposable",
        "SlurmctldHost": f"{host_name()}(127.0.0.1)",
        "SlurmctldPort": str(port),
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        # A job that is requeued waits until its credential has expired: two minutes by default.
        "AuthInfo": f"socket={folder}/munge/socket,cred_expire=5",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        # PMIx keeps the files of a step there, and nodes that share a machine must not share them.
        "TmpFS": f"{folder}/tmp/%n",
        "SlurmctldPidFile": f"{folder}/spool/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/spool/%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        # Nodes have what the configuration says, not what this machine has.
        "SlurmdParameters": "config_overrides",
        "GresTypes": "gpu",
        "MpiDefault": "none",
        "MailProg": "/bin/true",
        "DefMemPerNode": "100",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,bf_interval=2,sched_min_interval=0,nohold_on_prolog_fail",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "JobRequeue": "1",
        "KillWait": "5",
        "MinJobAge": "300",
        "ReturnToService": "2",
        "SlurmctldTimeout": "30",
        "SlurmdTimeout": "30",
        "MessageTimeout": "20",
        "InactiveLimit": "0",
        "UnkillableStepTimeout": "20",
        "Prolog": f"{folder}/bin/prolog",
        "PrologFlags": "Alloc",
    }


def _accounting(folder: Path, shape: SlurmShape) -> dict[str, str]:
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(shape.database_port),
        "AccountingStoragePass": f"{folder}/munge/socket",
        "AccountingStoreFlags": "job_comment",
        "AccountingStorageTRES": "gres/gpu",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
    }


def gres_conf(folder: Path, shape: SlurmShape) -> str:
    """Return the text of gres.conf; Slurm wants a character device for each GPU, so they are made or found.

    Raises:
        DisposableSlurmError: this user can make no devices and the machine has no terminals to stand for them.
    """
    if shape.gpus == 0:
        return ""
    return f"Name=gpu File={_devices(folder, shape.gpus)}[0-{shape.gpus - 1}]\n"


def _devices(folder: Path, count: int) -> str:
    """Return what the paths of the devices begin with; a number from 0 follows."""
    made = folder / "devices" / "gpu"
    try:
        made.parent.mkdir(exist_ok=True)
        for index in range(count):
            os.mknod(f"{made}{index}", stat.S_IFCHR | 0o600, os.makedev(_DEVICE_MAJOR, index))
        return str(made)
    except PermissionError:
        pass  # only root makes devices; the console's terminals do as well, since nothing opens them
    if not all(_is_device(f"/dev/tty{index}") for index in range(count)):
        raise DisposableSlurmError(
            "fake GPUs need character devices, and this user can neither make nor find them",
            given=f"{count} GPUs per node",
            allowed=f"root, or a machine with /dev/tty0 to /dev/tty{count - 1}",
            next="run as root, or without GPUs",
        )
    return "/dev/tty"


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False
