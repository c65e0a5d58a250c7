"""`python -m support`: synthetic runs to look at, and simulated runs with faults, for who changes Cordée."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option
from cordee.runs.folder import RunFolder


@click.group()
def support() -> None:
    """Make synthetic runs, and simulate runs with faults."""


@support.command("make-run")
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
      python -m support make-run /tmp/runs --gpus 1024 --minutes 5
    """
    from support.made.runs import MadeRun, follow_run, write_run

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


@support.command()
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
      python -m support simulate --seeds 0-100 --shrink
    """
    from support.simulation.report import replay_case, run_campaign

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
