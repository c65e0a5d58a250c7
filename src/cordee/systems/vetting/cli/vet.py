"""`cordee vet`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cordee.core.errors import EXIT_DONE, UsageError
from cordee.core.terminal.group import DefaultGroup
from cordee.job.terminal.options import json_option


def cluster_option(function: Any) -> Any:
    """Add `--on CLUSTER`."""
    text = "Whose profile to use (default: CORDEE_ON, else the one of this Slurm, else local)."
    return click.option("--on", "cluster", metavar="CLUSTER", help=text)(function)


@click.group(cls=DefaultGroup, invoke_without_command=True)
@click.argument("protocol", required=False)
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Abort when fewer than N nodes are fit.")
@click.option("--dir", "folder", default=".", metavar="DIR", help="Where results go; all nodes see it (default: here).")
@click.option("--history", metavar="WHERE", help="Keep the results: `site`, a folder or the URL of a collector.")
@click.option("--deadline", metavar="TIME", help="For everything together, over the protocol's own; such as 60s.")
@click.option("--root", metavar="DIR", help="Where the host's /proc, /sys and /dev are seen, in a container.")
@cluster_option
@click.option("--list", "listing", is_flag=True, help="Show all checks with what they take, and end.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of protocols, and end.")
@json_option
def command(
    protocol: str | None,
    nodes: int | None,
    folder: str,
    history: str | None,
    deadline: str | None,
    root: str | None,
    cluster: str | None,
    listing: bool,
    schema: bool,
    as_json: bool,
) -> None:
    """Vet this allocation, or this machine, by PROTOCOL: a YAML file, or quick, host, gpu, full.

    Under `srun` all tasks take part; the first one gives the verdict. Exit codes: 0 continue, 3 continue without some
    nodes, 4 abort, 2 the protocol is wrong, 5 Cordée failed.

    \b
    Example:
      cordee vet host
      cordee vet full --nodes 3 --json
      cordee vet --list
    """
    if listing or schema:
        _tell(schema, as_json)
    elif protocol is None:
        raise UsageError(
            "no protocol is given",
            allowed="a YAML file, or quick, host, gpu, full",
            next="try `cordee vet quick`; `cordee vet --list` shows what a protocol may hold",
        )
    else:
        raise click.exceptions.Exit(_vet(protocol, nodes, folder, history, deadline, root, cluster, as_json))


def _vet(
    protocol: str,
    nodes: int | None,
    folder: str,
    history: str | None,
    deadline: str | None,
    root: str | None,
    cluster: str | None,
    as_json: bool,
) -> int:
    from cordee.systems.vetting.node.standalone import VetOptions, take_part

    def load() -> dict[str, Any]:
        from cordee.core.terminal.output import print_findings
        from cordee.systems.vetting.protocol.in_use import protocol_in_use

        document, findings = protocol_in_use(protocol, cluster, history)
        print_findings(findings)
        return document

    return take_part(
        VetOptions(
            load=load,
            folder=folder,
            min_nodes=nodes,
            as_json=as_json,
            deadline_s=_seconds(deadline) if deadline is not None else None,
            root=root,
        )
    )


def _seconds(text: str) -> float:
    from cordee.core.units import DURATION_FORMS, parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError("invalid --deadline", given=text, allowed=DURATION_FORMS, next="try --deadline 60s")
    return seconds


def _tell(schema: bool, as_json: bool) -> None:
    from cordee.core.terminal.output import print_json
    from cordee.systems.vetting.protocol.schema import check_list, check_list_text, protocol_schema

    if schema:
        print_json(protocol_schema())
    elif as_json:
        print_json(check_list())
    else:
        click.echo(check_list_text(), nl=False)


@command.command()
@click.argument("protocol")
@click.option("--into", metavar="DIR", help="Folder of prepared environments, seen by all nodes (default: the cache).")
@cluster_option
@json_option
def prepare(protocol: str, into: str | None, cluster: str | None, as_json: bool) -> None:
    """Install what the evals of PROTOCOL require, once, into an environment that `cordee vet` then uses.

    Run it where packages can be had, such as a login node: nothing is ever installed while nodes are vetted. After --into
    DIR, `cordee vet` finds it where CORDEE_ENVIRONMENTS=DIR is set, or where the profile names DIR.

    \b
    Example:
      cordee vet prepare full
    """
    from cordee.core.terminal.output import print_json
    from cordee.systems.vetting.protocol.in_use import prepare_for

    python, requirements = prepare_for(protocol, cluster, Path(into).absolute() if into else None)
    if as_json:
        print_json({"schema": "cordee.prepared/1", "python": python, "requirements": requirements})
    elif python is None:
        click.echo(f"{protocol} requires no packages")
    else:
        click.echo(f"prepared {python}")
    raise click.exceptions.Exit(EXIT_DONE)
