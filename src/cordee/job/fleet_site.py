"""What a site allows to be done about nodes: the tables `[vetting.offenders]` and `[vetting.actions]` of a profile."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from cordee.core.documents.fields import Argv, Count, Document, Duration, Lines, wrong

PLACEHOLDERS = ("node", "gpu", "rule", "reason")
_BRACES = re.compile(r"\{(\w*)\}")


def _known(argv: tuple[str, ...]) -> tuple[str, ...]:
    for word in argv:
        for name in _BRACES.findall(word):
            if name not in PLACEHOLDERS:
                allowed = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
                raise wrong(f"holds {{{name}}}, which stands for nothing", f"words with {allowed} in them")
    return argv


def _template(argv: tuple[str, ...]) -> tuple[str, ...]:
    if not any("{node}" in word for word in argv):
        raise wrong(
            "does not say which node it is for", 'a command with {node} in it, such as ["site-reset", "{node}"]'
        )
    return argv


Template = Annotated[Argv, AfterValidator(_known), AfterValidator(_template)]
# It gets a document that names the node, so that its words need not.
Ticket = Annotated[Argv, AfterValidator(_known)]


class OffenderPolicy(Document):
    """`[vetting.offenders]`: when a node is drained, and when it comes back.

    `days` is how far back the history counts, `confirmations` how many jobs must agree on a soft fault, `clean_vettings`
    how many in a row bring a node back, `drains_without_person` how often in `days` that may happen by itself,
    `daily_ratio` the share of a partition that may be drained in 24 hours (at least one node). `protocols` are the names
    or digests that count (none: all; a person's own protocol may ask for what no node has). `vet_every` is the pause
    between vettings of a drained node by the site's own command.
    """

    days: Annotated[float, Field(strict=False, ge=1, le=365)] = 28.0
    confirmations: Annotated[int, Field(ge=2, le=100)] = 2
    clean_vettings: Annotated[int, Field(ge=1, le=100)] = 2
    drains_without_person: Count = 2
    daily_ratio: Annotated[float, Field(strict=False, gt=0, le=1)] = 0.05
    protocols: Lines = ()
    vet_every: Duration = 600.0


class SiteActions(Document):
    """`[vetting.actions]`: the site's own commands, each a list of words with `{node}`, `{gpu}`, `{rule}`, `{reason}`.

    `reset` resets GPUs (`{gpu}` is the faulty one's index, several with commas between them, or `all`), `reboot` reboots, `diagnose` runs a deep diagnosis, `vet` vets a
    drained node and writes the history, `ticket` gets a JSON document on standard input. `ticket_url` is a webhook for the
    same document, with a token in `ticket_token_file`. `timeout` is for each.
    """

    reset: Template | None = None
    reboot: Template | None = None
    diagnose: Template | None = None
    vet: Template | None = None
    ticket: Ticket | None = None
    ticket_url: str | None = None
    ticket_token_file: str | None = None
    timeout: Duration = 300.0
