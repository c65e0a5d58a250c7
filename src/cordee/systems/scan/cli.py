"""`cordee scan`."""

from __future__ import annotations

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1)
@click.option(
    "--allow",
    multiple=True,
    metavar="MODULE.NAME",
    help="A name in pickles that you know to be harmless; MODULE.* for all of it.",
)
@click.option("--no-secrets", is_flag=True, help="Do not look for keys in texts.")
@click.option(
    "--convert",
    metavar="FILE",
    help="Write the tensors of one checkpoint of PyTorch to FILE as safetensors, running nothing of it.",
)
@click.option("--packages", "only_packages", is_flag=True, help="Look at packages and images only, not at each file.")
@click.option(
    "--advisories",
    metavar="PATH",
    help="A snapshot of OSV's advisories, a zip or a folder (default: [scan] advisories of the profile).",
)
@click.option("--sbom", metavar="FILE", help="Write what packages there are to FILE as CycloneDX 1.6.")
@click.option("--on", "cluster", metavar="CLUSTER", help="Whose lists of packages (default: CORDEE_ON, else local).")
@click.option(
    "--history", is_flag=True, help="Look for keys in what the repositories around PATH have ever committed, too."
)
@click.option(
    "--move-keys",
    is_flag=True,
    help="Put the keys of shell and Python scripts into files that only you may read, and have the scripts read those.",
)
@click.option("--explain", metavar="RULE", help="Say what a rule means, and what to do.")
@json_option
def command(
    paths: tuple[str, ...],
    allow: tuple[str, ...],
    no_secrets: bool,
    convert: str | None,
    only_packages: bool,
    advisories: str | None,
    sbom: str | None,
    cluster: str | None,
    history: bool,
    move_keys: bool,
    explain: str | None,
    as_json: bool,
) -> None:
    """Look at model files, archives, scripts, notebooks, packages and images before they are trusted: poisoned models, keys that leak.

    What a file is is told by its content. Nothing in it is executed: a process looks at it that can open, start and reach nothing.
    Exit code 1: something is bad (`block`), or nobody can say that it is not (`unknown`).

    \b
    Example:
      cordee scan .
      cordee scan model.pt --json
      cordee scan --move-keys job.sh
      cordee scan .venv --advisories all.zip --sbom bom.json
      cordee scan --explain model-pickle-call
    """
    from cordee.core.draw.clean import clean
    from cordee.systems.scan.files import ScanResult, scan_tree, tree_of, with_history
    from cordee.systems.scan.packages.sbom import write_bill
    from cordee.systems.scan.packages.scan import scan_packages
    from cordee.systems.scan.words import explained, lines

    if explain is not None:
        click.echo(explained(explain))
        return
    if not paths:
        raise UsageError("nothing to look at was named", allowed="files and folders", next="name a path: cordee scan .")
    if convert is not None:
        _converted(paths, convert, as_json)
        return
    if move_keys:
        _moved(paths, as_json)
        return
    tree = tree_of(paths)
    packages = scan_packages(tree, cluster_name(cluster), advisories, allow)
    scan = ScanResult(0, [], tree, True) if only_packages else scan_tree(tree, allow, secrets=not no_secrets)
    scan = scan.with_packages(packages)
    if sbom is not None:
        write_bill(sbom, packages.packages, paths[0])
    if history:
        scan = with_history(scan, paths)
    if as_json:
        print_json(scan.document())
    else:
        for line in lines(scan):
            click.echo(clean(line))
    raise click.exceptions.Exit(EXIT_BAD if scan.verdict in ("block", "unknown") else EXIT_DONE)


def _converted(paths: tuple[str, ...], target: str, as_json: bool) -> None:
    from cordee.core.draw.clean import clean
    from cordee.core.units import format_size
    from cordee.systems.scan.convert import convert

    if len(paths) != 1:
        raise UsageError("--convert takes one checkpoint at a time", given=" ".join(paths), next="name one file")
    try:
        converted = convert(paths[0], target)
    except OSError as error:
        raise UsageError(f"{error.strerror or error}", given=error.filename2 or error.filename or target) from None
    if as_json:
        print_json(converted._asdict())
        return
    click.echo(clean(f"{converted.path}: {converted.tensors:,} tensors, {format_size(converted.size)}"))
    if converted.left_out:
        shown = ", ".join(converted.left_out[:8]) + (" ..." if len(converted.left_out) > 8 else "")
        click.echo(clean(f"left out, being no tensors: {shown}"))


def _moved(paths: tuple[str, ...], as_json: bool) -> None:
    from pathlib import Path

    from cordee.core.draw.clean import clean
    from cordee.core.words import counted
    from cordee.systems.scan.moved.move import move_keys

    left = 0
    for path in paths:
        try:
            moved = move_keys(Path(path))
        except OSError as error:
            raise UsageError(f"{error.strerror or error}", given=error.filename or path) from None
        left += len(moved.left)
        if as_json:
            print_json(moved._asdict())
            continue
        click.echo(clean(moved.difference), nl=False)
        for file in moved.files:
            click.echo(clean(f"moved: {file} (mode 600)"))
        for words in moved.left:
            click.echo(clean(f"left:  {moved.path}: {words}"))
        if moved.files:
            click.echo(
                "next:  a key that others could read is theirs: have the service make a new one, and put it into that file"
            )
        elif not moved.left:
            click.echo(clean(f"{moved.path}: {counted(0, 'key')} found"))
    raise click.exceptions.Exit(EXIT_BAD if left else EXIT_DONE)
