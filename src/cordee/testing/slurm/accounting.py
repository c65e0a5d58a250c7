"""The accounting of a disposable cluster: a MariaDB that only listens on a socket in the folder, and slurmdbd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cordee.backends.slurm.node.commands import SlurmError
from cordee.testing.slurm.configuration import SlurmShape, host_name, user_name
from cordee.testing.slurm.daemons import plugin_folder

PROGRAMS = ("mariadbd", "mariadb-install-db", "my_print_defaults")
ACCOUNT = "research"


def install_command(folder: Path) -> list[str]:
    """Return the command line that writes the system tables of MariaDB, and ends."""
    return [
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={folder}/database/data",
        f"--user={user_name()}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ]


def mariadb_command(folder: Path) -> list[str]:
    """Return the command line of MariaDB: no network, and no care for a power cut."""
    return [
        "mariadbd",
        "--no-defaults",
        f"--user={user_name()}",
        f"--datadir={folder}/database/data",
        f"--socket={folder}/database/socket",
        f"--pid-file={folder}/database/mariadbd.pid",
        "--skip-networking",
        "--skip-log-bin",
        "--innodb-buffer-pool-size=128M",
        "--innodb-lock-wait-timeout=900",
        "--innodb-flush-log-at-trx-commit=0",
    ]


def slurmdbd_conf(folder: Path, shape: SlurmShape) -> str:
    """Return the text of slurmdbd.conf."""
    values = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "DbdHost": host_name(),
        "DbdAddr": "127.0.0.1",
        "DbdPort": shape.database_port,
        "SlurmUser": user_name(),
        "LogFile": f"{folder}/log/slurmdbd.log",
        "PidFile": f"{folder}/spool/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": "slurm_acct_db",
    }
    if shape.suite:
        values["PluginDir"] = plugin_folder(shape.suite)
    return "".join(f"{key}={value}\n" for key, value in values.items())


def add_associations(cluster: str, command: Callable[..., str]) -> None:
    """Make the cluster, the account `research` and this user in it known to slurmdbd; what is known already stays.

    Args:
        cluster: its name.
        command: runs a Slurm command on it.
    """
    for words in (
        ["cluster", cluster],
        ["account", ACCOUNT, f"Cluster={cluster}"],
        ["user", user_name(), f"Account={ACCOUNT}"],
    ):
        try:
            command("sacctmgr", "--immediate", "add", *words)
        except SlurmError as error:
            if "already exist" not in error.said and "Nothing new added" not in error.said:
                raise
