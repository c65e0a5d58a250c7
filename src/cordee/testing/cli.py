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
    """Test helpers: a private Slurm, a private HTCondor pool.

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
@click.option("--suite", metavar="NAME", help="Fetch and use the Slurm of this Debian suite, such as trixie.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, metavar="S", help="Ready in this time.")
@json_option
def up(
    folder: str | None,
    nodes: int,
    cpus: int,
    memory_mb: int,
    gpus: int,
    accounting: bool,
    suite: str | None,
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
        _folder(folder, "slurm"),
        nodes=nodes,
        cpus=cpus,
        memory_mb=memory_mb,
        gpus=gpus,
        accounting=accounting,
        suite=suite,
    )
    cluster.up(timeout_s)
    if as_json:
        print_json({**_document(cluster.folder, cluster.env, "slurm"), "nodes": cluster.node_names})
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

    cluster = DisposableSlurm.attach(_folder(folder, "slurm"))
    if not cluster.living():
        raise UsageError(
            "the disposable Slurm of this folder does not run any more",
            given=str(cluster.folder),
            next="cordee testing slurm up, with the same folder, starts it afresh",
        )
    if as_json:
        print_json(_document(cluster.folder, cluster.env, "slurm"))
        return
    _print_exports(cluster.env)


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

    cluster = DisposableSlurm.attach(_folder(folder, "slurm"))
    cluster.down()
    if as_json:
        print_json({"schema": "cordee.testing.slurm/1", "folder": str(cluster.folder)})
    else:
        click.echo(f"{cluster.folder} is gone")


@command.group()
def htcondor() -> None:
    """Put up a private HTCondor pool on this machine: many execution points, no privileges, nothing left behind.

    They share this machine's cores, and its files but for those that are hidden from jobs: it shows what a scheduler does.

    \b
    Example:
      cordee testing htcondor up --hide ~/jobs
    """


@htcondor.command("up")
@folder_argument
@click.option(
    "--machines", default=2, show_default=True, metavar="N", help="How many execution points: node1 to nodeN."
)
@click.option("--cpus", default=2, show_default=True, metavar="N", help="CPUs that each machine claims to have.")
@click.option("--memory", "memory_mb", default=4096, show_default=True, metavar="MB", help="Memory, likewise.")
@click.option("--gpus", default=0, show_default=True, metavar="N", help="GPUs per machine; names without devices.")
@click.option("--hide", "hidden", multiple=True, metavar="DIR", help="Jobs see this folder empty; may be repeated.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, metavar="S", help="Ready in this time.")
@json_option
def up_pool(
    folder: str | None,
    machines: int,
    cpus: int,
    memory_mb: int,
    gpus: int,
    hidden: tuple[str, ...],
    timeout_s: float,
    as_json: bool,
) -> None:
    """Start a pool in DIR (default: in your cache folder) and return when it takes jobs.

    HTCondor's programs are those on PATH; where there are none, they are fetched into your cache folder first.

    \b
    Example:
      cordee testing htcondor up --machines 4 --hide ~/jobs
      eval "$(cordee testing htcondor env)"
      condor_status
      cordee testing htcondor down
    """
    from cordee.testing.htcondor import DisposablePool

    pool = DisposablePool(
        _folder(folder, "htcondor"),
        machines=machines,
        cpus=cpus,
        memory_mb=memory_mb,
        gpus=gpus,
        hidden=[Path(path) for path in hidden],
    )
    _fetch()
    pool.up(timeout_s)
    if as_json:
        print_json({**_document(pool.folder, pool.env, "htcondor"), "machines": pool.machine_names})
        return
    words = shlex.join(["cordee", "testing", "htcondor", "env", *([folder] if folder else [])])
    click.echo(f'{len(pool.machine_names)} machines take jobs; to use them: eval "$({words})"')


@htcondor.command("env")
@folder_argument
@json_option
def env_of_pool(folder: str | None, as_json: bool) -> None:
    """Print what to export to use the pool in DIR.

    \b
    Example:
      cordee testing htcondor env
    """
    from cordee.testing.htcondor import DisposablePool

    pool = DisposablePool.attach(_folder(folder, "htcondor"))
    if "master" not in pool.living():
        raise UsageError(
            "the disposable HTCondor pool of this folder does not run any more",
            given=str(pool.folder),
            next="cordee testing htcondor up, with the same folder, starts it afresh",
        )
    if as_json:
        print_json(_document(pool.folder, pool.env, "htcondor"))
        return
    _print_exports(pool.env)


@htcondor.command("down")
@folder_argument
@json_option
def down_pool(folder: str | None, as_json: bool) -> None:
    """End the jobs and daemons of the pool in DIR and remove the folder.

    \b
    Example:
      cordee testing htcondor down
    """
    from cordee.testing.htcondor import DisposablePool

    pool = DisposablePool.attach(_folder(folder, "htcondor"))
    pool.down()
    if as_json:
        print_json({"schema": "cordee.testing.htcondor/1", "folder": str(pool.folder)})
    else:
        click.echo(f"{pool.folder} is gone")


@htcondor.command("fetch")
@json_option
def fetch_programs(as_json: bool) -> None:
    """Fetch HTCondor's programs into your cache folder, where none are installed, as the first `up` would do.

    \b
    Example:
      cordee testing htcondor fetch
    """
    programs = _fetch()
    if as_json:
        print_json({"schema": "cordee.testing.htcondor/1", "programs": str(programs)})
    else:
        click.echo(f"HTCondor's programs are in {programs}")


def _print_exports(env: dict[str, str]) -> None:
    """Print them for a shell; of PATH what stands before that shell's own, which may be another by then."""
    for name, value in env.items():
        if name == "PATH":
            click.echo(f'export PATH={shlex.quote(value.partition(os.pathsep)[0])}:"$PATH"')
        else:
            click.echo(f"export {name}={shlex.quote(value)}")


def _fetch() -> Path:
    from cordee.testing.htcondor import programs

    if programs.find() is None:
        click.echo("fetching HTCondor, once: about 140 MB and a minute", err=True)
    return programs.fetch().release


def _folder(given: str | None, scheduler: str) -> Path:
    """Return the folder: as given, else one in the user's cache folder."""
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordee" / scheduler


def _document(folder: Path, env: dict[str, str], scheduler: str) -> dict[str, object]:
    return {"schema": f"cordee.testing.{scheduler}/1", "folder": str(folder), "env": env}
