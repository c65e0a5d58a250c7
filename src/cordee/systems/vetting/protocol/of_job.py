"""The protocol that a job document names; its faults are said with the document's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cordee.core.documents.faults import ValuePlace
from cordee.core.documents.merge import Merge
from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.job.document import Job, VetTable
from cordee.job.profile import ClusterProfile

if TYPE_CHECKING:
    from cordee.systems.vetting.protocol.document import Protocol


def read_protocol(
    job: Job, folder: Path, profile: ClusterProfile, merge: Merge
) -> tuple[Protocol | None, Sequence[Finding], Sequence[Finding]]:
    """Return the protocol that a job names, None without one; then its faults, and what is worth saying of it."""
    if job.vet.protocol is None:
        return None, (), ()
    protocol, faults = protocol_of_job(job.vet, folder, profile, merge)
    return protocol, faults, protocol.findings if protocol else ()


def protocol_of_job(
    vet: VetTable, folder: Path, profile: ClusterProfile, merge: Merge
) -> tuple[Protocol | None, list[Finding]]:
    """Return the protocol that `[vet]` names, or None and what is wrong with it.

    Args:
        vet: the table; it has a protocol.
        folder: the job's folder.
        profile: of the cluster that the job is meant for.
        merge: where the values of the document came from.
    """
    from cordee.systems.vetting.protocol.document import load_protocol, protocol_path
    from cordee.systems.vetting.protocol.site import site_of

    given = str(vet.protocol)
    history = vet.history
    if isinstance(history, str) and "://" not in history and history != "site":
        history = str(folder / os.path.expandvars(os.path.expanduser(history)))
    try:
        path = protocol_path(given, folder)
    except DocumentError as error:
        place = merge.place(("vet", "protocol"), ValuePlace())
        return None, [replace(finding, file=place.file, line=place.line) for finding in error.findings]
    try:
        return load_protocol(path, site_of(profile), history=history), []
    except DocumentError as error:
        return None, list(error.findings)
