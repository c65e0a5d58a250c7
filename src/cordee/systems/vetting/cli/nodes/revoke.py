"""`cordee nodes act revoke` and `restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cordee.core.draw.clean import clean
from cordee.core.errors import EXIT_BAD
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import json_option
from cordee.systems.vetting.cli.nodes.options import history_options

if TYPE_CHECKING:
    from cordee.systems.vetting.fleet.revocation import Verb

_WORDS = {"planned": "would", "done": "did", "failed": "FAILED to"}


def revoking(verb: Verb, summary: str, example: str) -> click.Command:
    """Return the command of one verb."""

    @click.command(verb, help=f"{summary}\n\n\b\nExample:\n  {example}")
    @click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
    @click.option("--job", default="", metavar="ID", help="Only this job of the node (default: the whole node).")
    @click.option("--reason", required=True, metavar="TEXT", help="Why; the audit trail keeps it.")
    @click.option("--yes", is_flag=True, help="Do it; without this, only what would be done is shown.")
    @click.option("--audit", metavar="FILE", help="The audit trail (default: actions.jsonl in the history).")
    @history_options
    @json_option
    def command(
        nodes: tuple[str, ...],
        job: str,
        reason: str,
        yes: bool,
        audit: str | None,
        history: str | None,
        token_file: str | None,
        cluster: str | None,
        as_json: bool,
    ) -> None:
        from cordee.core.hostlist import expand_nodes
        from cordee.systems.vetting.fleet.audit import Audit
        from cordee.systems.vetting.fleet.history_location import history_place
        from cordee.systems.vetting.fleet.revocation import revoke
        from cordee.systems.vetting.protocol.site import vetting_profile

        profile = vetting_profile(cluster)
        trail = Path(audit) if audit else history_place(history, profile, token_file).audit
        names = [name for word in nodes for name in expand_nodes(word)]
        done = revoke(verb, names, job, reason, profile.vetting.actions, Audit(trail), yes=yes)
        if as_json:
            print_json({"schema": "cordee.revoke/1", "actions": [one.document() for one in done]})
        else:
            for one in done:
                what = f"job {one.proposal.job} on {one.proposal.node}" if job else one.proposal.node
                click.echo(clean(f"{_WORDS[one.phase]} {verb} {what}: {one.how}"))
                if one.said:
                    click.echo(clean(f"    {one.said}"))
            if not yes:
                click.echo("a dry run: nothing was done; --yes does it", err=True)
        if any(one.phase == "failed" for one in done):
            raise click.exceptions.Exit(EXIT_BAD)

    return command


revoke_command = revoking(
    "revoke",
    "Cut a job or a node off the network by the site's command for root; a dry run unless told otherwise.",
    "cordee nodes act revoke n17 --job 4711 --reason 'sends to unknown hosts' --yes",
)
restore_command = revoking(
    "restore", "Take a revocation back.", "cordee nodes act restore n17 --job 4711 --reason 'it was a mistake' --yes"
)
