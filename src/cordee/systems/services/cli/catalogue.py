"""`cordee service list|show|new|check`."""

from __future__ import annotations

from pathlib import Path

import click

from cordee.core.errors import EXIT_USAGE, DocumentError
from cordee.core.terminal.output import print_findings, print_json
from cordee.job.terminal.options import json_option
from cordee.systems.services.blueprint import TARGETS, Target


@click.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the catalogue: Cordée's own entries, with the site's and yours over them.

    Entries of a person are TOML files in ~/.config/cordee/services, a site's in /etc/cordee/services; CORDEE_CATALOGUES names others.

    \b
    Example:
      cordee service list
    """
    from cordee.systems.services.catalogue import catalogue
    from cordee.systems.services.start import refusals

    found, faults = catalogue()
    rows = [
        {
            "name": name,
            "purpose": one.blueprint.purpose,
            "cost": one.blueprint.cost,
            "tested": one.blueprint.tested,
            "origin": one.origin,
            "targets": [target for target in TARGETS if not refusals(one, target)],
            "backup": one.blueprint.backup.text,
        }
        for name, one in sorted(found.items())
    ]
    if as_json:
        print_json({"schema": "cordee.services/1", "services": rows, "findings": [one.document() for one in faults]})
        return
    for row in rows:
        click.echo(f"{row['name']:18} {row['tested']:9} {', '.join(row['targets']):38} {row['purpose']}")
    print_findings(faults)


@click.command("show")
@click.argument("service")
@json_option
def show(service: str, as_json: bool) -> None:
    """Show one entry of the catalogue: what it is for, what it takes, its parameters, and its blueprint.

    \b
    Example:
      cordee service show mlflow
    """
    from cordee.systems.services.catalogue import find_blueprint

    loaded = find_blueprint(service)
    blueprint = loaded.blueprint
    if as_json:
        document = {"schema": "cordee.service-blueprint/1", "file": str(loaded.path), "origin": loaded.origin}
        print_json({**document, "blueprint": blueprint.model_dump(mode="json", by_alias=True)})
        return
    facts = [
        ("purpose", blueprint.purpose),
        ("costs", blueprint.cost),
        ("backup", blueprint.backup.text),
        ("tests", "run it" if blueprint.tested == "run" else "only look at its manifests"),
        ("install", "; ".join(blueprint.install)),
        ("after", ", ".join(blueprint.after)),
        *(
            (f"--set {name}", f"{one.text} ({one.type}{'' if one.default is None else f', default {one.default}'})")
            for name, one in blueprint.parameters.items()
        ),
        ("file", f"{loaded.path} ({loaded.origin})"),
    ]
    for name, text in facts:
        if text:
            click.echo(f"{name:12} {text}")
    click.echo("\n" + loaded.text.rstrip())


@click.command("new")
@click.argument("name")
@click.option("--from", "base", metavar="SERVICE", help="Begin with an entry of the catalogue, under a new name.")
@click.option("--directory", metavar="DIR", default=".", help="Where to write NAME.toml (default: here).")
def new(name: str, base: str | None, directory: str) -> None:
    """Draft a blueprint: NAME.toml, with a comment at each key.

    \b
    Example:
      cordee service new my-dashboard
      cordee service new our-mlflow --from mlflow --directory ~/.config/cordee/services
    """
    from cordee.core.documents.files import write_new
    from cordee.systems.services.draft import draft

    path = Path(directory).expanduser() / f"{name}.toml"
    write_new(path, draft(name, base, path), f"cordee service check {path}")
    click.echo(f"wrote {path}; `cordee service check {path}` says whether it is right", err=True)


@click.command("check")
@click.argument("service")
@click.option("--target", type=click.Choice(TARGETS), help="Whether this target can honour it, too.")
@json_option
def check(service: str, target: Target | None, as_json: bool) -> None:
    """Check a blueprint, with file and line of each fault, and whether some target can honour it. Exit code 2: it is wrong.

    \b
    Example:
      cordee service check my-dashboard.toml --target kubernetes
    """
    from cordee.systems.services.catalogue import find_blueprint
    from cordee.systems.services.start import refusals

    try:
        loaded = find_blueprint(service)
        refused = {one: refusals(loaded, one) for one in ([target] if target else TARGETS)}
        nearest: Target = target or ("process" if loaded.blueprint.argv else "kubernetes")
        findings = [*loaded.findings, *(refused[nearest] if all(refused.values()) else ())]
    except DocumentError as error:
        findings = error.findings
    valid = not any(finding.severity == "error" for finding in findings)
    if as_json:
        print_json(
            {"schema": "cordee.service-check/1", "valid": valid, "findings": [one.document() for one in findings]}
        )
    else:
        print_findings(findings)
        if valid:
            click.echo(f"{service} is right", err=True)
    if not valid:
        raise click.exceptions.Exit(EXIT_USAGE)
