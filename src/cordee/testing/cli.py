"""`cordee testing`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option

if TYPE_CHECKING:
    from cordee.runs.folder import RunFolder

folder_argument = click.argument("folder", metavar="[DIR]", required=False)


@click.group()
def command() -> None:
    """Test helpers: a private Slurm, synthetic runs, simulated runs with faults.

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


@command.command("make-run")
@click.argument("runs", metavar="DIR")
@click.option(
    "--gpus", default=10752, show_default=True, metavar="N", help="How many GPUs, four to a node, a rank on each."
)
@click.option("--minutes", default=10.0, show_default=True, metavar="M", help="How long it ran, at a sample a second.")
@click.option("--live", is_flag=True, help="Write on in real time, until interrupted.")
@click.option(
    "--for", "for_s", type=float, metavar="S", help="With --live: continue for S seconds only, then end well."
)
@json_option
def make_run(runs: str, gpus: int, minutes: float, live: bool, for_s: float | None, as_json: bool) -> None:
    """Write a made-up run of many GPUs below DIR: for looking at it (`cordee serve --runs DIR`) and for benchmarks.

    Nothing in it was measured. It has a slow node, a rank that stalls, checkpoints, gaps, a GPU that nobody can measure and a restart.

    \b
    Example:
      cordee testing make-run /tmp/runs --gpus 1024 --minutes 5
    """
    from cordee.testing.made.runs import MadeRun, follow_run, write_run

    if for_s is not None and not live:
        raise UsageError("--for goes with --live", given=f"--for {for_s:g}", allowed="--live --for SECONDS")
    made = MadeRun(gpus, round(minutes * 60))
    if not live:
        _say_run(write_run(runs, made), made.gpus, as_json)
        return
    written = follow_run(runs, made, float("inf") if for_s is None else for_s)
    _say_run(next(written), made.gpus, as_json)
    for _ in written:
        pass


@command.command()
@click.option("--seeds", metavar="A-B", help="From A, up to but without B (default: 0-200; of --pairs: all).")
@click.option("--pairs", is_flag=True, help="Each fault, then each pair of the worst, at every message and event.")
@click.option("--phases", is_flag=True, help="Faults that wait for a phase of the run: each kind meets each phase.")
@click.option("--nodes", default=2, show_default=True, metavar="N", help="Nodes that each run needs.")
@click.option("--faults", metavar="KIND,...", help="Only faults of these kinds (default: all).")
@click.option("--out", metavar="FILE", help="Keep what is done here, and go on from there.")
@click.option("--case", "case_file", metavar="FILE", help="Replay one case, as it was printed (- is standard input).")
@click.option("--shrink", is_flag=True, help="Leave out of failing cases what they do not need to fail.")
@click.option("--trace", is_flag=True, help="Say what happened in failing cases, and in the one that is replayed.")
@json_option
def simulate(
    seeds: str | None,
    pairs: bool,
    phases: bool,
    nodes: int,
    faults: str | None,
    out: str | None,
    case_file: str | None,
    shrink: bool,
    trace: bool,
    as_json: bool,
) -> None:
    """Simulate runs: the real supervisor and agents in virtual time, with faults by chance, one run for each seed.

    The same seed goes the same way each time. Exit code 1: a rule was broken; the case that did it is printed.

    \b
    Example:
      cordee testing simulate --seeds 0-100 --shrink
    """
    from cordee.testing.simulation.report import replay_case, run_campaign

    if case_file:
        broken = replay_case(case_file, shrink, trace, as_json)
    else:
        broken = run_campaign(seeds, nodes, faults, out, shrink, trace, as_json, pairs, phases)
    if broken:
        raise SystemExit(EXIT_BAD)


def _say_run(folder: RunFolder, gpus: int, as_json: bool) -> None:
    if as_json:
        print_json({"schema": "cordee.testing.made-run/1", "run": folder.id, "folder": str(folder.root), "gpus": gpus})
    else:
        click.echo(f"wrote {folder.root}: a synthetic run with {gpus:,} GPUs")


def _folder(given: str | None) -> Path:
    """Return the folder: as given, else one in the user's cache folder."""
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordee" / "slurm"


def _document(folder: Path, env: dict[str, str]) -> dict[str, object]:
    return {"schema": "cordee.testing.slurm/1", "folder": str(folder), "env": env}
