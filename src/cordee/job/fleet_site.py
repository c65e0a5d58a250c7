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
    """`[vetting.offenders]`: when a node is drained, and when it comes back."""

    days: Annotated[float, Field(strict=False, ge=1, le=365)] = 28.0
    """How far back the history counts, in days."""
    confirmations: Annotated[int, Field(ge=2, le=100)] = 2
    """How many jobs must agree on a soft fault."""
    clean_vettings: Annotated[int, Field(ge=1, le=100)] = 2
    """How many clean vettings in a row bring a node back."""
    drains_without_person: Count = 2
    """How often in `days` a node may be drained without a person."""
    daily_ratio: Annotated[float, Field(strict=False, gt=0, le=1)] = 0.05
    """The share of a partition that may be drained in 24 hours, at least one node."""
    protocols: Lines = ()
    """Names or digests of the protocols that count, since a person's own may ask for what no node has; without them, all."""
    vet_every: Duration = 600.0
    """The pause between vettings of a drained node by the site's own command."""


class SiteActions(Document):
    """`[vetting.actions]`: the site's own commands, each a list of words with `{node}`, `{gpu}`, `{rule}`, `{reason}`."""

    reset: Template | None = None
    """Resets GPUs; `{gpu}` is the index of the faulty one, several with commas between them, or `all`."""
    reboot: Template | None = None
    """Reboots the node."""
    diagnose: Template | None = None
    """Runs a deep diagnosis."""
    vet: Template | None = None
    """Vets a drained node and writes the history."""
    ticket: Ticket | None = None
    """Opens a ticket; it gets a JSON document on standard input."""
    ticket_url: str | None = None
    """A webhook for the same document."""
    ticket_token_file: str | None = None
    """The file with the webhook's token."""
    timeout: Duration = 300.0
    """How long each command may take."""
