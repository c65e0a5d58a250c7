"""The protocol that `cordee vet` was given, with what the site adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cordee.core.findings import Finding
from cordee.systems.vetting.protocol.document import load_protocol
from cordee.systems.vetting.protocol.site import environments_folder, find_site


def protocol_in_use(given: str, cluster: str | None, history: str | None) -> tuple[dict[str, Any], list[Finding]]:
    """Return the resolved protocol (`cordee.protocol/1`), and what is worth saying about it.

    Args:
        given: path of a YAML file, or the name of a built-in protocol.
        cluster: whose profile adds to it; None: as `find_site` finds out.
        history: where results are kept, over the protocol's own; None: as it says.

    Raises:
        DocumentError: the protocol or the profile is wrong.
        UsageError: there is no such cluster.
    """
    protocol = load_protocol(given, find_site(cluster), history=history)
    return protocol.resolved(), list(protocol.findings)


def prepare_for(given: str, cluster: str | None, into: Path | None) -> tuple[str | None, list[str | list[str]]]:
    """Make the environment that a protocol requires, unless it is there; return its interpreter and what is required.

    Args:
        given, cluster: as in `protocol_in_use`.
        into: the folder of environments; None: as CORDEE_ENVIRONMENTS or the profile says, else the person's cache.

    Raises:
        DocumentError, UsageError: as `protocol_in_use`.
        PrepareError: it cannot be made.
    """
    from cordee.job.prepared import prepare

    site = find_site(cluster)
    protocol = load_protocol(given, site)
    if not protocol.requirements:
        return None, []
    folder = into or environments_folder(site)
    python = prepare(protocol.requirements, site.python, protocol.index_url, folder)
    return str(python), protocol.requirements
