"""`cordee env unused`."""

from __future__ import annotations

import sys

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.environments.cli.run import InFront

_SHOWN = 20


@click.command("unused", cls=InFront, context_settings={"allow_interspersed_args": False})
@click.argument("file")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose profile counts (default: CORDEE_ON, else local).")
@json_option
def command(file: str, argv: tuple[str, ...], cluster: str | None, as_json: bool) -> None:
    """Run a command in the image of FILE, and say which packages it opened no file of, with what they take.

    Modules, shared libraries, data and programs count; what describes packages does not. Another command, or another day, may
    need what this one did not: build without a package and try before you do without it. Every file that is opened takes
    longer meanwhile. The exit code is the command's.

    \b
    Example:
      cordee env unused env.toml -- python3 train.py --steps 5
    """
    from pathlib import Path

    from cordee.core.draw.clean import clean
    from cordee.core.units import format_size
    from cordee.systems.environments.opened import observe
    from cordee.systems.environments.package_use import SCHEMA, ImageFiles
    from cordee.systems.environments.start import start

    ready = start(file, argv, cluster=cluster_name(cluster), engine="namespace")
    root = ready.environment.root
    if root is None or root.kind != "squashfs":
        given = ready.environment.image or "(the machine's own files)"
        raise UsageError(
            "only the files of a squashfs image can be counted", given=given, next="cordee env pull or build"
        )
    sys.stdout.flush()
    code, opened, run = observe(ready.argv, ready.env, 2 if as_json else None)
    uses = ImageFiles(Path(root.path)).use(opened, run)
    packages = [each for each in uses if each.kind]
    if as_json:
        listed = [each._asdict() for each in packages]
        others = next((each._asdict() for each in uses if not each.kind), None)
        print_json({"schema": SCHEMA, "exit_code": code, "packages": listed, "of_no_package": others})
        raise click.exceptions.Exit(code)
    unused = [each for each in packages if not each.opened_files and each.bytes]
    total = format_size(sum(each.bytes for each in packages))
    click.echo(
        f"{len(unused)} of {len(packages)} packages were not opened: "
        f"{format_size(sum(each.bytes for each in unused))} of {total}",
        err=True,
    )
    for each in unused[:_SHOWN]:
        click.echo(
            clean(f"{format_size(each.bytes):>9}  {each.kind:<4}  {each.name} {each.version}".rstrip()), err=True
        )
    if len(unused) > _SHOWN:
        click.echo(f"and {len(unused) - _SHOWN} more; --json has all", err=True)
    half = [each for each in packages if each.opened_files and each.opened_bytes < each.bytes // 2][:3]
    if half:
        parts = (f"{each.name} {format_size(each.opened_bytes)} of {format_size(each.bytes)}" for each in half)
        click.echo(clean(f"opened in part: {', '.join(parts)}"), err=True)
    raise click.exceptions.Exit(code)
