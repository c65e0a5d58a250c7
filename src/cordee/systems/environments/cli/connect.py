"""`cordee env connect`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from cordee.core.errors import UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of


@click.command("connect")
@run_argument
@click.option("--node", metavar="NODE", help="This node of the run (default: the first).")
@click.option("--jump", metavar="HOST", help="Go through this host, as `ssh -J` does: a login node.")
@click.option("--identity", metavar="FILE", help="The private key (default: those that ssh finds by itself).")
@click.option(
    "--tunnel",
    "tunnels",
    metavar="[LOCAL:]PORT",
    multiple=True,
    help="Make this port of the node one of this machine, until ^C. May be given more than once.",
)
@runs_option
@json_option
def command(
    run: str,
    node: str | None,
    jump: str | None,
    identity: str | None,
    tunnels: tuple[str, ...],
    runs: str | None,
    as_json: bool,
) -> None:
    """Show how to connect to RUN (default: the last one) by ssh, VS Code and JetBrains, inside its container; make tunnels.

    Its environment has to ask for that by the annotation com.hooks.ssh.enabled.

    \b
    Example:
      cordee env connect
      cordee env connect last --jump login.site.org
      cordee env connect last --tunnel 8888
    """
    from cordee.systems.environments.connect import RunAccess, tunnel_words

    folder = found(run, runs)
    if state_of(folder).ended:
        raise UsageError("this run has ended; there is nothing to connect to", given=folder.id)
    access = RunAccess(folder.root, node, jump, Path(identity) if identity else None)
    access.write()
    if tunnels:
        words = [*access.ssh(), "-N", "-o", "ExitOnForwardFailure=yes", *tunnel_words(tunnels)]
        click.echo(f"cordee: {shlex.join(words)}", err=True)
        os.execvp(words[0], words)
    if as_json:
        print_json(access.document())
    else:
        click.echo(access.text(), nl=False)
