"""`cordee plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import json_option
from cordee.systems.sizing.workload import CHECKPOINTINGS, OPTIMIZERS, PRECISIONS, STRATEGIES, TASKS

if TYPE_CHECKING:
    from cordee.systems.sizing.plan import SizedPlan

_SOLVED = ("batch", "sequence", "layers", "gpus")
_SNIPPETS = ("fsdp2", "accelerate", "deepspeed", "megatron")


@click.command()
@click.argument("target")
@click.option("--task", type=click.Choice(TASKS), help="What is done (default: train).")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="bf16, fp16: autocast (default: bf16); int8, int4, nf4: of weights that are not trained.",
)
@click.option("--optimizer", type=click.Choice(list(OPTIMIZERS)), help="Default: adamw, which is PyTorch's.")
@click.option("--micro-batch", type=click.IntRange(1, 1 << 20), help="Samples of one rank in one forward (default: 1).")
@click.option("--batch", type=click.IntRange(1, 1 << 24), help="Samples of all ranks in one step.")
@click.option("--sequence", type=click.IntRange(1, 1 << 24), help="Tokens of one sample (default: 2048).")
@click.option("--checkpointing", type=click.Choice(CHECKPOINTINGS), help="Of activations (default: none).")
@click.option("--compiled", is_flag=True, default=None, help="The model goes through torch.compile.")
@click.option("--offload", is_flag=True, default=None, help="Optimizer states lie in the host's memory.")
@click.option(
    "--offload-activations", is_flag=True, default=None, help="What blocks keep for backward lies there, too."
)
@click.option(
    "--step-in-backward", is_flag=True, default=None, help="Each parameter steps as soon as its gradient is there."
)
@click.option("--chunked-loss", is_flag=True, default=None, help="Logits of a part of the tokens exist at once.")
@click.option("--lora-rank", type=click.IntRange(1, 4096), help="Of LoRA on queries and values (default: 8).")
@click.option(
    "--gpu",
    metavar="MODEL",
    is_flag=False,
    flag_value="",
    help="Such as h100, a100_80gb, l4 (default: of the cluster's profile); `validate --gpu`: this machine's, in under 8 minutes.",
)
@click.option("--gpu-memory", metavar="SIZE", help="Of one GPU, or of an instance of one (MIG).")
@click.option("--gpus", type=click.IntRange(1, 65536), help="How many there are (default: as few as it fits on).")
@click.option("--per-node", type=click.IntRange(1, 1024), help="GPUs of one node (default: of the profile, else 8).")
@click.option("--layout", metavar="SIZES", help="One layout, such as fsdp=8,tp=4 or dp=2,zero=1.")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="How a job document's ranks divide the model.")
@click.option(
    "--solve",
    type=click.Choice(_SOLVED),
    help="Say the largest batch, sequence, layers, or the fewest gpus, that fits.",
)
@click.option(
    "--goal",
    metavar="AMOUNT",
    help="Such as `300B tokens`, `90M samples`, `20k steps`: its time, GPU-hours and energy.",
)
@click.option(
    "--picture",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write memory against speed of all layouts, as a page.",
)
@click.option("--snippet", type=click.Choice(_SNIPPETS), help="Print code for the best layout, and end.")
@click.option("--explain", is_flag=True, help="Show what `other` consists of, modules and the line that hold the most.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="With `validate`: this model only.")
@click.option("--no-run", is_flag=True, help="Run nothing of the user's: formulas only.")
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose GPUs (default: CORDEE_ON, else local).")
@json_option
def command(
    target: str,
    solve: str | None,
    snippet: str | None,
    explain: bool,
    no_run: bool,
    picture: str | None,
    models: tuple[str, ...],
    cluster: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Say what TARGET takes of a GPU's memory, in which layouts it fits, and what to change. Exit code 1: it does not fit.

    TARGET is a Hugging Face config.json, a TOML table [model], a function FILE.py:NAME that returns a model (and a batch), or a job
    document or script. `calibrate` compares what was predicted of past runs with what they used, and corrects plans by it; `validate` compares traces of small models with what they allocate on this machine. Functions and scripts run in a child without GPUs, in which tensors have no memory; nothing is written.

    \b
    Example:
      cordee plan config.json --gpu a100_80gb --gpus 8 --sequence 4096
      cordee plan model.py:make --gpu h100
      cordee plan . --explain
      cordee plan validate
    """
    if target == "validate":
        _validate(models, gpu=given["gpu"] is not None, as_json=as_json)
        return
    if target == "calibrate":
        _calibrate(as_json=as_json)
        return
    if given["gpu"] == "":
        raise UsageError(
            "--gpu needs a name", given="--gpu", next="name it, such as --gpu h100; alone it is for `validate`"
        )
    from cordee.systems.sizing.target import plan_target

    plan = plan_target(target, cluster, given, no_run=no_run)
    if snippet:
        from cordee.systems.sizing.snippets import snippet as code

        asked = given["layout"] or not plan.ranking or not plan.ranking[0].fits
        best = plan.here.layout if asked else plan.ranking[0].layout
        click.echo(code(snippet, best, plan.workload, plan.model), nl=False)
        return
    if picture:
        from cordee.systems.sizing.picture import write_picture

        write_picture(plan, Path(picture))
    solved = _solved(solve, plan) if solve else None
    if as_json:
        document = plan.document()
        print_json({**document, "solved": None if solve is None else {solve: solved}})
    else:
        from cordee.systems.sizing.words import lines_of

        for line in lines_of(plan, explain=explain):
            click.echo(line)
        if solve:
            word = {"batch": "the largest micro-batch", "gpus": "the fewest GPUs"}.get(solve, f"the most {solve}")
            click.echo(f"{word}: {solved or 'none fits'}")
        print_findings(list(plan.findings))
    if (solve and not solved) or (not solve and plan.device is not None and not plan.fits):
        raise click.exceptions.Exit(EXIT_BAD)


def _solved(what: str, plan: SizedPlan) -> int:
    """Return the most, or the fewest GPUs, that fits."""
    from cordee.systems.sizing.layouts import solve

    if plan.device is None:
        raise UsageError("there is no GPU to solve for", given=f"--solve {what}", next="give --gpu MODEL")
    return solve(what, plan.model, plan.workload, plan.here.layout, plan.device)


def _calibrate(*, as_json: bool) -> None:
    """Print predicted and measured peaks of runs, and keep what they say of the next prediction."""
    from cordee.job.terminal.options import runs_folders
    from cordee.systems.sizing.measured.calibration import LEAST_RUNS, keep_calibration
    from cordee.systems.sizing.measured.truths import truths

    found = truths(runs_folders(None))
    try:
        factors = keep_calibration(found)
    except OSError as error:
        raise UsageError("the cache cannot be written", given=str(error.filename), next=str(error.strerror)) from None
    if as_json:
        runs = [{**one._asdict(), "ratio": one.ratio} for one in found]
        print_json({"schema": "cordee.plan-calibration/1", "factors": factors, "runs": runs})
        return
    for one in found:
        inside = "" if one.inside else "  outside of its interval"
        click.echo(f"{one.run:40} {one.key:12} {one.predicted:>14,} {one.measured:>14,} {one.ratio - 1:+.1%}{inside}")
    if not factors:
        click.echo(
            f"nothing is corrected: it takes {LEAST_RUNS} finished runs of one kind that were planned and measured"
        )
    for key, ratio in factors.items():
        click.echo(f"{key}: predictions are multiplied by {ratio:.3f}")


def _validate(models: tuple[str, ...], *, gpu: bool, as_json: bool) -> None:
    """Print every case of a validation, misses too. Exit code 1: one was predicted too low by more than 3 %."""
    from cordee.systems.sizing.validation.validate import cases, summary

    found = []
    for one in cases(models, gpu=gpu):
        found.append(one)
        if not as_json:
            error = one.why if one.error is None else f"{one.error:+.1%}"
            both = one.whole_predicted and one.whole_measured
            whole = f"  whole {one.whole_predicted:,} {one.whole_measured:,}" if both else ""
            sizes = f"{one.predicted or 0:>12,} {one.measured or 0:>12,}"
            click.echo(f"{one.model:28} {one.half:9} {one.precision:10} {sizes} {error}{whole}")
    told = summary(found)
    if as_json:
        documents = [{**one._asdict(), "error": one.error} for one in found]
        print_json({"schema": "cordee.plan-validation/1", **told, "found": documents})
    else:
        for name, value in told.items():
            click.echo(f"{name}: {value:.2%}" if isinstance(value, float) else f"{name}: {value}")
    if told["under_by_more_than_3_percent"]:
        raise click.exceptions.Exit(EXIT_BAD)
