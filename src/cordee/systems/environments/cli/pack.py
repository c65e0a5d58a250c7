"""`cordee env pack`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cordee.core.errors import EXIT_BAD
from cordee.core.registry import said_of_image
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.environments.cli.arrivals import arrival_code, show_findings

if TYPE_CHECKING:
    from cordee.systems.environments.venv_image.packing import PackedVenv

PACK_SCHEMA = "cordee.pack/1"


@click.command("pack")
@click.argument("venv")
@click.option("-o", "--output", metavar="FILE", help="The file to make (default: the folder's name with .sqsh, here).")
@click.option("--at", metavar="PATH", help="Where it will be mounted (default: at VENV's own path).")
@click.option("--compression", default="zstd", show_default=True, metavar="NAME", help="zstd, lz4, gzip, xz or none.")
@click.option("--with-python", is_flag=True, help="Bring the Python along that VENV stands on.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--no-verify", is_flag=True, help="Do not mount it and import a few packages afterwards.")
@json_option
def command(
    venv: str,
    output: str | None,
    at: str | None,
    compression: str,
    with_python: bool,
    force: bool,
    no_verify: bool,
    as_json: bool,
) -> None:
    """Make one squashfs of the Python environment VENV, which activates by being mounted.

    VENV is a virtual environment or a conda prefix; it is only read. The file holds byte code for VENV's own Python,
    and prints what an EDF needs to mount it. Exit code 1: it could not be made, or does not work when it is tried.

    \b
    Example:
      cordee env pack .venv
      cordee env pack ~/envs/train -o /scratch/train.sqsh --at /opt/train --with-python
    """
    from cordee.systems.environments.venv_image.packing import pack, verified

    folder = Path(venv)
    packed = pack(
        folder,
        Path(output or f"{folder.absolute().name.lstrip('.') or 'venv'}.sqsh"),
        at=Path(at) if at else None,
        compression=compression,
        with_python=with_python,
        force=force,
    )
    if not no_verify:
        packed = verified(packed)
    findings = [finding.document() for finding in said_of_image(str(packed.file), cluster_name(None))]
    if as_json:
        print_json({**_document(packed, compression), "findings": findings})
    else:
        show_findings(findings)
        _show(packed)
    failed = packed.verified is not None and packed.verified.failed
    raise click.exceptions.Exit(EXIT_BAD if failed else arrival_code(findings))


def _document(packed: PackedVenv, compression: str) -> dict[str, Any]:
    return {
        "schema": PACK_SCHEMA,
        "file": packed.file,
        "source": packed.source,
        "at": packed.at,
        "python": packed.python,
        "compression": compression,
        "before": {"files": packed.files, "bytes": packed.bytes},
        "after": {"files": 1, "bytes": packed.packed_bytes, "files_inside": packed.packed_files},
        "byte_code": {
            "reused": packed.reused,
            "compiled": packed.compiled,
            "not_compiled": list(packed.not_compiled),
        },
        "outside": [each._asdict() for each in packed.outside],
        "warnings": list(packed.warnings),
        "verified": packed.verified._asdict() if packed.verified else None,
        "edf": {"mounts": packed.mounts(), "env": packed.env()},
        "seconds": packed.seconds,
    }


def _show(packed: PackedVenv) -> None:
    from cordee.core.units import format_duration, format_size

    before = f"{packed.files:,} files of {format_size(packed.bytes)}"
    after = f"1 file of {format_size(packed.packed_bytes)}"
    click.echo(f"{packed.file}: {before} became {after} in {format_duration(packed.seconds)}")
    code = f"{packed.compiled:,} compiled, {packed.reused:,} reused, {len(packed.not_compiled):,} do not compile"
    click.echo(f"byte code for Python {packed.python}: {code}")
    for text in [*(each.text for each in packed.outside), *packed.warnings]:
        click.echo(f"warn: {text}", err=True)
    if packed.verified is not None:
        _show_verified(packed)
    click.echo("\nIn an EDF:\n")
    for line in edf_lines(packed):
        click.echo(line)


def _show_verified(packed: PackedVenv) -> None:
    said = packed.verified
    assert said is not None
    if not said.tried:
        click.echo(f"warn: not tried: {said.text}", err=True)
    elif said.text:
        click.echo(f"error: {said.text}", err=True)
    well = [name for name, error in said.imports.items() if error is None]
    if well:
        click.echo(f"mounted and imported: {', '.join(well)}")
    for name, error in said.imports.items():
        if error is not None:
            click.echo(f"error: `import {name}` works in the folder, not in the pack: {error}", err=True)


def edf_lines(packed: PackedVenv) -> list[str]:
    """Return the lines of an EDF that activate the pack."""
    import json

    mounts = [f"  {json.dumps(mount)}," for mount in packed.mounts()]
    env = [f"{name} = {json.dumps(value)}" for name, value in packed.env().items()]
    return ["mounts = [", *mounts, "]", "", "[env]", *env]
