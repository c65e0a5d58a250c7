"""What a disposable pool is made of, and the files that its daemons and clients read."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from cordee.testing.daemons import Claims
from cordee.testing.htcondor.programs import RECORD, Programs

# condor_submit takes no job of root's, so root's pool and its clients are in user namespaces, where root is nobody.
AS_NOBODY = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
# Ports in a row: one for all daemons, and those that collector and schedd open beside it.
PORTS = 64
# Programs of the pool's own folder on PATH: a second master there would be another pool's.
_NO_CLIENTS = frozenset(["condor_master"])


class PoolShape(BaseModel):
    """What a pool is made of; kept in its folder as pool.json.

    Attributes:
        machines, cpus, memory_mb, disk_mb, gpus: how many execution points, and what each claims to have.
        hidden: folders that jobs see empty.
        settings: lines of the configuration that replace ours.
        port: the first of its ports.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_name: str = "cordee.testing.htcondor/1"
    machines: int = Field(ge=1, le=64)
    cpus: int = Field(ge=1)
    memory_mb: int = Field(ge=1)
    disk_mb: int = Field(ge=1)
    gpus: int = Field(ge=0, le=64)
    hidden: tuple[Path, ...]
    settings: Mapping[str, str]
    port: int = Field(ge=1, le=65535)

    @property
    def machine_names(self) -> list[str]:
        """The names of the execution points: node1 to nodeN."""
        return [f"node{index + 1}" for index in range(self.machines)]


CLAIMS = Claims("HTCondor pool", "cordee testing htcondor", RECORD, PoolShape, longest=120)


def write_files(folder: Path, shape: PoolShape, programs: Programs) -> None:
    """Write everything that daemons and clients read."""
    of_machines = [f"execute/{name}" for name in shape.machine_names]
    for name in ("bin", "etc", "lock", "log", "off", "pid", "programs", "spool", *of_machines):
        (folder / name).mkdir(parents=True)
    for name in of_machines:
        (folder / name).chmod(0o755)
    _write_clients(folder, programs)
    if shape.hidden:
        _write_program(folder / "etc" / "job-wrapper", _hiding(shape.hidden))
    for name in shape.machine_names:
        _write_program(folder / "etc" / name, _machine(folder / "off" / name, programs))
    (folder / "condor_config").write_text(condor_config(folder, shape, programs))


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _write_clients(folder: Path, programs: Programs) -> None:
    """Fill the folder for PATH: HTCondor's commands alone, since another suite's programs would be beside them."""
    found = [path for place in (programs.sbin, programs.bin) for path in sorted(place.glob("condor_*"))]
    found.append(programs.libexec / "condor_chirp")
    wrapper = folder / "etc" / "as-nobody"
    as_root = os.getuid() == 0
    _write_program(
        wrapper, f'#!/bin/sh\nexec {shlex.join(AS_NOBODY)} {shlex.quote(str(folder / "programs"))}/"${{0##*/}}" "$@"\n'
    )
    for path in found:
        if path.name in _NO_CLIENTS or not os.access(path, os.X_OK):
            continue
        for place, target in (("programs", path), ("bin", wrapper if as_root else path)):
            link = folder / place / path.name
            link.unlink(missing_ok=True)
            link.symlink_to(target)


def _hiding(hidden: tuple[Path, ...]) -> str:
    """Return the program that jobs are started with: what it mounts only the job sees, and it becomes the job, which gets all signals."""
    mounts = " && ".join(f"mount -t tmpfs none {shlex.quote(str(path))}" for path in hidden)
    # When its wrapper writes this file, HTCondor says why in the job's log, and tries again: it never runs with that in sight.
    failed = 'echo "a folder could not be hidden from the job" >"$_CONDOR_WRAPPER_ERROR_FILE"; exit 1'
    # The job gets no rights over its own files that a person's job would not have.
    inside = f'{mounts} || {{ {failed}; }}; exec setpriv --ambient-caps=-all --inh-caps=-all -- "$@"'
    return (
        f'#!/bin/sh\nexec unshare --user --map-current-user --keep-caps --mount sh -c {shlex.quote(inside)} sh "$@"\n'
    )


def _machine(off: Path, programs: Programs) -> str:
    """Return the program that the master starts as a machine: it becomes condor_startd once the machine is not off."""
    startd = shlex.quote(str(programs.sbin / "condor_startd"))
    return f'#!/bin/sh\nwhile [ -e {shlex.quote(str(off))} ]; do sleep 0.1; done\nexec {startd} "$@"\n'


def condor_config(folder: Path, shape: PoolShape, programs: Programs) -> str:
    """Return the text of the configuration, the same for daemons and clients."""
    values = {**_places(folder, programs), **_network(shape.port), **_PEOPLE, **_QUICK, **_MACHINES}
    values["DAEMON_LIST"] = "MASTER SHARED_PORT COLLECTOR NEGOTIATOR SCHEDD"
    if shape.hidden:
        values["USER_JOB_WRAPPER"] = f"{folder}/etc/job-wrapper"
    if shape.gpus:
        # One name stands for all machines: it is not read for one of them.
        values["MACHINE_RESOURCE_GPUs"] = ", ".join(f"GPU-fake-{index + 1}" for index in range(shape.gpus))
    if os.getuid() == 0:
        values["QUEUE_SUPER_USERS"] = "root, condor, nobody"
    for index, name in enumerate(shape.machine_names, 1):
        values["DAEMON_LIST"] += f" STARTD{index}"
        own = {
            "STARTD_NAME": name,
            "STARTD_LOG": f"{folder}/log/StartLog.{name}",
            "STARTD_ADDRESS_FILE": f"{folder}/log/.startd_address.{name}",
            "STARTER_LOG": f"{folder}/log/StarterLog.{name}",
            "EXECUTE": f"{folder}/execute/{name}",
            "NUM_CPUS": str(shape.cpus),
            "MEMORY": str(shape.memory_mb),
            "DISK": str(shape.disk_mb * 1024),
        }
        values[f"STARTD{index}"] = f"{folder}/etc/{name}"
        values[f"STARTD{index}_ARGS"] = f"-f -local-name {name}"
        values.update({f"{name.upper()}.{key}": value for key, value in own.items()})
    lines = [f"{name} = {value}" for name, value in values.items()]
    # Where no control groups bound a job, one that is over its memory is held at the next look.
    lines.append("use POLICY : HOLD_IF_MEMORY_EXCEEDED")
    lines += [f"{name} = {value}" for name, value in shape.settings.items()]
    return "\n".join(lines) + "\n"


def _places(folder: Path, programs: Programs) -> dict[str, str]:
    release = programs.release
    return {
        "RELEASE_DIR": str(release),
        "BIN": str(programs.bin),
        "SBIN": str(programs.sbin),
        "LIB": f"{release}/lib",
        "LIBEXEC": str(programs.libexec),
        "SHARE": f"{release}/share/condor",
        "LOCAL_DIR": str(folder),
        "LOG": f"{folder}/log",
        "SPOOL": f"{folder}/spool",
        "EXECUTE": f"{folder}/execute",
        "LOCK": f"{folder}/lock",
        "LOCAL_DISK_LOCK_DIR": f"{folder}/lock",
        "RUN": f"{folder}/lock",
        # Who can make a folder here is let in, as whom it belongs to. In /tmp any user could, to run jobs as the pool's owner.
        "FS_LOCAL_DIR": f"{folder}/lock",
        "ETC": f"{folder}/etc",
        "LOCAL_CONFIG_DIR": "",
        "REQUIRE_LOCAL_CONFIG_FILE": "False",
        # The user's own configuration is about another pool.
        "USER_CONFIG_FILE": "",
    }


def _network(port: int) -> dict[str, str]:
    """One port on loopback for all, and a row for what collector and schedd open beside it."""
    return {
        "CONDOR_HOST": "127.0.0.1",
        "NETWORK_INTERFACE": "127.0.0.1",
        "BIND_ALL_INTERFACES": "False",
        "ENABLE_IPV6": "False",
        "NO_DNS": "True",
        "DEFAULT_DOMAIN_NAME": "test",
        "FULL_HOSTNAME": "localhost",
        "USE_SHARED_PORT": "True",
        "SHARED_PORT_PORT": str(port),
        "COLLECTOR_HOST": f"127.0.0.1:{port}",
        "IN_LOWPORT": str(port + 1),
        "IN_HIGHPORT": str(port + PORTS - 1),
    }


# The kernel says who is who (FS). Users are known, file systems are not: each job travels.
_PEOPLE = {
    "UID_DOMAIN": "cordee.test",
    "TRUST_UID_DOMAIN": "True",
    "SOFT_UID_DOMAIN": "True",
    "FILESYSTEM_DOMAIN": "access.cordee.test",
    "SEC_DEFAULT_AUTHENTICATION": "REQUIRED",
    "SEC_DEFAULT_AUTHENTICATION_METHODS": "FS",
    "ALLOW_ADMINISTRATOR": "*",
    "ALLOW_READ": "*",
    "ALLOW_WRITE": "*",
    "ALLOW_DAEMON": "*",
    "ALLOW_NEGOTIATOR": "*",
}

# Seconds, where HTCondor takes minutes.
_QUICK = {
    "SCHEDD_INTERVAL": "2",
    "SCHEDD_MIN_INTERVAL": "1",
    "NEGOTIATOR_INTERVAL": "2",
    "NEGOTIATOR_MIN_INTERVAL": "1",
    "NEGOTIATOR_CYCLE_DELAY": "1",
    "UPDATE_INTERVAL": "5",
    "POLLING_INTERVAL": "2",
    "STARTER_UPDATE_INTERVAL": "5",
    "STARTER_INITIAL_UPDATE_INTERVAL": "1",
    "SHADOW_QUEUE_UPDATE_INTERVAL": "5",
    "CLAIM_WORKLIFE": "0",
    # Jobs are matched with a machine that is lost until the collector forgets it; who lives says so every five seconds.
    "CLASSAD_LIFETIME": "30",
    "MASTER_UPDATE_INTERVAL": "5",
    "NEGOTIATOR_UPDATE_INTERVAL": "5",
    "MASTER_BACKOFF_CONSTANT": "1",
    "MASTER_BACKOFF_CEILING": "5",
    "SHUTDOWN_FAST_TIMEOUT": "10",
    "DAGMAN_USER_LOG_SCAN_INTERVAL": "1",
    # Else a DAG below /tmp is an error.
    "DAGMAN_USE_STRICT": "0",
}

# Machines that take every job at once, and give it ten seconds when it has to go.
_MACHINES = {
    "START": "True",
    "PREEMPT": "False",
    "KILL": "False",
    "WANT_SUSPEND": "False",
    "MAXJOBRETIREMENTTIME": "0",
    "MachineMaxVacateTime": "10",
    "RunBenchmarks": "False",
    "STARTD_CRON_JOBLIST": "",
    "BENCHMARKS_JOBLIST": "",
    "DISCARD_SESSION_KEYRING_ON_STARTUP": "False",
    "MAIL": "/bin/true",
    # What a machine would look for when it comes up, for seconds.
    "DOCKER": "",
    "JAVA": "",
    "SINGULARITY": "",
    "SSHD": "",
    "FILETRANSFER_PLUGINS": "$(LIBEXEC)/curl_plugin",
    "HIBERNATION_PLUGIN": "",
    "NUM_SLOTS": "1",
    "NUM_SLOTS_TYPE_1": "1",
    "SLOT_TYPE_1": "100%",
    "SLOT_TYPE_1_PARTITIONABLE": "True",
    # The parallel universe needs machines that know one schedd.
    "SCHEDD_NAME": "access@",
    "DedicatedScheduler": '"DedicatedScheduler@access@"',
    "STARTD_ATTRS": "$(STARTD_ATTRS) DedicatedScheduler",
    "RANK": "Scheduler =?= $(DedicatedScheduler)",
}
