"""The accounting of a disposable cluster: a MariaDB that only listens on a socket in the folder, and slurmdbd."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cordee.slurm import SlurmError, run_command
from cordee.testing.slurm.configuration import Shape, host_name, user_name
from cordee.testing.slurm.daemons import DisposableSlurmError, find_program

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "my_print_defaults")
ACCOUNT = "research"
_INSTALL_S = 120.0


def make_database(folder: Path) -> None:
    """Write the system tables of MariaDB.

    Raises:
        DisposableSlurmError: its installer failed; with its words.
    """
    command = [
        str(find_program("mariadb-install-db")),
        "--no-defaults",
        f"--datadir={folder}/database/data",
        f"--user={user_name()}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ]
    (folder / "database").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_INSTALL_S, check=False)
    if done.returncode != 0:
        raise DisposableSlurmError(f"MariaDB cannot be set up: {(done.stderr or done.stdout).strip()[-1500:]}")


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


def slurmdbd_conf(folder: Path, shape: Shape) -> str:
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
    return "".join(f"{key}={value}\n" for key, value in values.items())


def add_associations(cluster: str, env: dict[str, str]) -> None:
    """Make the cluster, the account `research` and this user in it known to slurmdbd; what is known already stays."""
    for words in (
        ["cluster", cluster],
        ["account", ACCOUNT, f"Cluster={cluster}"],
        ["user", user_name(), f"Account={ACCOUNT}"],
    ):
        try:
            run_command(["sacctmgr", "--immediate", "add", *words], env=env)
        except SlurmError as error:
            if "already exist" not in error.said and "Nothing new added" not in error.said:
                raise
