"""`cordee testing`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option

folder_argument = click.argument("folder", metavar="[DIR]", required=False)


@click.group()
def command() -> None:
    """Test helpers: a private Slurm.

    \b
    Example:
      cordee testing slurm up
    """


@command.group()
def slurm() -> None:
    """Put up a private Slurm on this machine: many nodes, no privileges, nothing left behind.

    Its nodes share this machine's cores and files: it shows what a scheduler does, not how fast a cluster is.

    \b
    Example:
      cordee testing slurm up --nodes 4
    """


@slurm.command()
@folder_argument
@click.option("--nodes", default=4, show_default=True, metavar="N", help="How many nodes: n1 to nN.")
@click.option("--cpus", default=8, show_default=True, metavar="N", help="CPUs that each node claims to have.")
@click.option("--memory", "memory_mb", default=16000, show_default=True, metavar="MB", help="Memory, likewise.")
@click.option("--gpus", default=0, show_default=True, metavar="N", help="GPUs per node; devices nobody can open.")
@click.option("--accounting", is_flag=True, help="Also slurmdbd with MariaDB, so that sacct and sacctmgr work.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, metavar="S", help="Ready in this time.")
@json_option
def up(
    folder: str | None,
    nodes: int,
    cpus: int,
    memory_mb: int,
    gpus: int,
    accounting: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Start a Slurm in DIR (default: in your cache folder) and return when all nodes are idle.

    \b
    Example:
      cordee testing slurm up --nodes 4 --gpus 4
      eval "$(cordee testing slurm env)"
      sinfo
      cordee testing slurm down
    """
    from cordee.testing.slurm import DisposableSlurm

    cluster = DisposableSlurm(
        _folder(folder), nodes=nodes, cpus=cpus, memory_mb=memory_mb, gpus=gpus, accounting=accounting
    )
    cluster.up(timeout_s)
    if as_json:
        print_json({**_document(cluster.folder, cluster.env), "nodes": cluster.node_names})
        return
    words = shlex.join(["cordee", "testing", "slurm", "env", *([folder] if folder else [])])
    click.echo(f'{len(cluster.node_names)} nodes are idle; to use them: eval "$({words})"')


@slurm.command()
@folder_argument
@json_option
def env(folder: str | None, as_json: bool) -> None:
    """Print what to export to use the Slurm in DIR.

    \b
    Example:
      cordee testing slurm env
    """
    from cordee.testing.slurm import DisposableSlurm

    cluster = DisposableSlurm.attach(_folder(folder))
    if not cluster.living():
        raise UsageError(
            "the disposable Slurm of this folder does not run any more",
            given=str(cluster.folder),
            next="cordee testing slurm up, with the same folder, starts it afresh",
        )
    if as_json:
        print_json(_document(cluster.folder, cluster.env))
        return
    for name, value in cluster.env.items():
        click.echo(f"export {name}={shlex.quote(value)}")


@slurm.command()
@folder_argument
@json_option
def down(folder: str | None, as_json: bool) -> None:
    """Cancel the jobs of the Slurm in DIR, end its daemons and remove the folder.

    \b
    Example:
      cordee testing slurm down
    """
    from cordee.testing.slurm import DisposableSlurm

    cluster = DisposableSlurm.attach(_folder(folder))
    cluster.down()
    if as_json:
        print_json({"schema": "cordee.testing.slurm/1", "folder": str(cluster.folder)})
    else:
        click.echo(f"{cluster.folder} is gone")


def _folder(given: str | None) -> Path:
    """Return the folder: as given, else one in the user's cache folder."""
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordee" / "slurm"


def _document(folder: Path, env: dict[str, str]) -> dict[str, object]:
    return {"schema": "cordee.testing.slurm/1", "folder": str(folder), "env": env}
