"""`cordee env build`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.builds.cli.options import builder_of, cluster_option

if TYPE_CHECKING:
    from cordee.systems.builds.bill import ImageBill
    from cordee.systems.builds.builder import BuiltImage

BUILD_SCHEMA = "cordee.build/1"


@click.command("build")
@click.argument("file")
@click.option("--offline", is_flag=True, help="Fetch nothing: all that is locked has to be on this machine.")
@click.option("--locked", is_flag=True, help="The lock must be up to date, and the image the one that it was made for.")
@click.option("--check", is_flag=True, help="Make every layer again, and name the files that differ.")
@click.option("--oci", metavar="DIR", help="Write the image as an OCI layout, too.")
@click.option("--sbom", metavar="FILE", help="Write what is in it as CycloneDX 1.6 (default: beside FILE, .cdx.json).")
@cluster_option
@json_option
def command(
    file: str,
    offline: bool,
    locked: bool,
    check: bool,
    oci: str | None,
    sbom: str | None,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Make the image that FILE names, from its table [build], without root, a daemon or another tool.

    What the lock does not know is resolved first, and written into it. Layers that are made already are not made again.
    Exit code 1: a step failed, something locked is not to be had, or the site refuses what is in the image.

    \b
    Example:
      cordee env build env.toml
      cordee env build env.toml --offline --locked
      cordee env build env.toml --oci ./layout
    """
    from pathlib import Path

    from cordee.core.errors import EXIT_BAD, EXIT_DONE
    from cordee.core.registry import said_of_image
    from cordee.systems.builds.bill import write_image_bill
    from cordee.systems.builds.builder import BuildWishes
    from cordee.systems.builds.layout import copy_layout
    from cordee.systems.builds.lock import read_lock

    name = cluster_name(cluster)
    built = builder_of(file, BuildWishes(name, offline, locked, fresh=check)).build()
    if oci is not None:
        copy_layout(built.layout, Path(oci))
    at = Path(sbom) if sbom else built.bill
    lock = read_lock(built.lock)
    bill = write_image_bill(at, built.path, built.name, lock.packages if lock else [], lock.epoch if lock else 0)
    findings = [*built.findings, *said_of_image(str(built.path), name)]
    if as_json:
        print_json(_document(built, bill, [finding.document() for finding in findings]))
    else:
        _show(built, bill)
        from cordee.core.terminal.output import print_findings

        print_findings(findings)
    refused = any(finding.severity == "error" for finding in findings)
    raise click.exceptions.Exit(EXIT_BAD if refused else EXIT_DONE)


def _document(built: BuiltImage, bill: ImageBill, findings: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": BUILD_SCHEMA,
        "digest": built.digest,
        "image": built.name,
        "path": str(built.path),
        "layout": str(built.layout),
        "layers": [layer._asdict() for layer in built.layers],
        "lock": str(built.lock),
        "sbom": str(bill.path),
        "packages": [package._asdict() for package in bill.packages],
        "findings": findings,
        "seconds": built.seconds,
    }


def _show(built: BuiltImage, bill: ImageBill) -> None:
    from cordee.core.units import format_duration, format_size

    for layer in built.layers:
        how = format_duration(layer.seconds) if layer.fresh else "kept"
        click.echo(f"{layer.digest[7:19]}  {format_size(layer.bytes):>8}  {how:>7}  {layer.step}")
    click.echo(f"{built.name}  {built.digest}  {format_duration(built.seconds)}")
    click.echo(f"{len(bill.packages)} packages in {bill.path}; largest: {bill.largest()}")
