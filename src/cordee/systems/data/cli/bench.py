"""`cordee data bench`."""

from __future__ import annotations

import sys
from typing import Any

import click

from cordee.core.errors import EXIT_BAD, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.systems.data.cli.named import catalogue_option, place_of


@click.command("bench")
@click.argument("target", metavar="DATASET")
@click.option(
    "--batch", type=click.IntRange(1), default=256, show_default=True, metavar="N", help="Samples of a batch."
)
@click.option("--threads", type=click.IntRange(0), metavar="N", help="Of cordee.dataset (default: its own).")
@click.option("--workers", type=click.IntRange(0), default=0, metavar="N", help="Worker processes (default: none).")
@click.option("--decode", metavar="HOW", help="Of cordee.dataset: auto (default: raw bytes).")
@click.option("--fields", default="", metavar="A,B", help="Only these fields of the samples.")
@click.option("--length", type=click.IntRange(1), metavar="N", help="Of a token set: tokens of a sample.")
@click.option("--shuffle/--in-order", default=True, help="The order of samples (default: shuffled).")
@click.option("--seed", type=int, default=0, metavar="N", help="Of the order.")
@click.option("--loader", "function", metavar="MODULE:FUNCTION", help="Your own: it returns an iterable of batches.")
@click.option("--args", "arguments", metavar="JSON", help="Arguments of that function, as a JSON object.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.05, 3600),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Of loading in a round.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    metavar="N",
    help="Pairs of loader and bare loop.",
)
@click.option(
    "--cache",
    type=click.Choice(["auto", "warm", "cold"]),
    default="auto",
    show_default=True,
    help="State of the page cache; auto: both.",
)
@click.option("--need", type=click.FloatRange(0, min_open=True), metavar="N", help="Samples/s that one rank takes.")
@click.option("--run", "run", metavar="RUN", help="Take what is needed from what this run's ranks took.")
@click.option("--keep/--no-keep", default=True, help="Keep the limit for the reports of trainings.")
@catalogue_option
@runs_option
@json_option
def command(
    target: str,
    fields: str,
    arguments: str | None,
    need: float | None,
    run: str | None,
    runs: str | None,
    keep: bool,
    cluster: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the loader alone, without a model, beside what storage gives in the same run.

    DATASET is a packed data set, a token set, a folder of files, or, for a loader of your own, one large file: a path, an
    s3:// address, or a name: of [data] in the cordee.toml here, or of the site's catalogue. Rounds of the loader and of a bare
    loop over the same bytes take turns; medians are told, once from the page cache and once from storage. The loader runs in
    a process of its own.
    With --need or --run the exit code is 1 when the loader is too slow.

    \b
    Example:
      cordee data bench /scratch/images
      cordee data bench /scratch/images --batch 512 --decode auto --need 3000
      cordee data bench /store/images --loader train.py:make_loader --args '{"workers": 4}'
    """
    from cordee.systems.data.bench.measure import measure
    from cordee.systems.data.bench.need import need_of_run
    from cordee.systems.data.bench.settings import Settings
    from cordee.systems.data.bench.text import render

    if run is not None:
        if need is not None:
            raise UsageError("--need and --run cannot be combined", given="--need and --run", allowed="one of them")
        from cordee.job.terminal.run_args import found

        need = need_of_run(found(run, runs), target)
    settings = Settings(
        target=place_of(target, cluster),
        fields=tuple(field for field in fields.split(",") if field),
        arguments=_arguments(arguments, options["function"]),
        need_samples_per_s=need,
        **options,
    )
    result = measure(settings, keep=keep)
    if as_json:
        print_json(result.document())
    else:
        click.echo(render(result))
    if result.enough is False:
        sys.exit(EXIT_BAD)


def _arguments(text: str | None, function: str | None) -> dict[str, Any]:
    import json

    if function is not None and ":" not in function:
        raise UsageError(
            "a loader is a function in a module", given=function, allowed="train:make_loader, or train.py:make_loader"
        )
    if text is None:
        return {}
    if function is None:
        raise UsageError("--args are the arguments of a --loader", given=text, next="give --loader MODULE:FUNCTION too")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--args is not JSON: {error}", given=text, allowed='{"workers": 4}') from None
    if not isinstance(found, dict):
        raise UsageError("--args is not a JSON object", given=text, allowed='{"workers": 4}')
    return found
