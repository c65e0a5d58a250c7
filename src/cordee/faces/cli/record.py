"""`cordee record`."""

from __future__ import annotations

from typing import Any

import click


class _InFront(click.Command):
    """Stands in front of other people's command lines: all its own failures have one exit code."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        from cordee.telemetry.node.record.options import RecordError

        try:
            return super().make_context(*args, **more)
        except click.UsageError as error:
            raise RecordError(error.format_message(), next="`cordee record --help` shows what it takes") from error


@click.command("record", cls=_InFront, context_settings={"allow_interspersed_args": False})
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[--] CMD...")
@click.option("-o", "--output", metavar="DIR", help="The recording's folder (default: a new one below recordings/).")
@click.option("--interval", default="1s", show_default=True, metavar="TIME", help="Time between samples, 100ms to 60s.")
@click.option(
    "--source",
    default="auto",
    show_default=True,
    metavar="SOURCE",
    help="Where samples of GPUs come from: auto, nvml-gpm, dcgm, nvml, amdsmi, cpu (none), replay:DIR.",
)
@click.option("--threads/--no-threads", default=None, help="Look at each thread, too (default: from 1s on).")
@click.option(
    "--bind",
    type=click.Choice(["gpu", "none"]),
    default="none",
    show_default=True,
    help="Bind the command to the CPUs near its GPU.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not say where the recording is.")
@click.option(
    "--json", "as_json", is_flag=True, help="Afterwards print one JSON document; CMD's output goes to stderr."
)
def command(argv: tuple[str, ...], interval: str, source: str, as_json: bool, **options: Any) -> None:
    """Sample any command: its GPUs, its processes, its node. Then `cordee score DIR`.

    The command runs as it would without: same process id, exit code, signals, terminal, input and output. Processes that
    were started together (srun, mpirun, torchrun) share one recording, with one sampler per node. Exit code
    125: recording could not start (reason on standard error); 126 and 127: the command cannot be executed or is not there.

    \b
    Example:
      cordee record -- python train.py
      srun cordee record -o recording -- python train.py
      cordee record --interval 100ms --source cpu -- ./simulate --steps 100
    """
    from cordee.telemetry.node.record.options import RecordOptions, checked_source, parse_interval
    from cordee.telemetry.node.record.run import run

    ready = RecordOptions(argv=argv, interval_s=parse_interval(interval), source=checked_source(source), **options)
    code = run(ready, as_json=as_json)
    raise click.exceptions.Exit(code)
