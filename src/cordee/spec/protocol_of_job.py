"""The protocol that a job document names; its faults are said with the document's."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cordee.errors import DocumentError
from cordee.findings import Finding
from cordee.spec.faults import Place
from cordee.spec.job import Vet
from cordee.spec.merge import Merge
from cordee.spec.profile import ClusterProfile

if TYPE_CHECKING:
    from cordee.spec.protocol import Protocol


def protocol_of_job(
    vet: Vet, folder: Path, profile: ClusterProfile, merge: Merge
) -> tuple[Protocol | None, list[Finding]]:
    """Return the protocol that `[vet]` names, or None and what is wrong with it.

    Args:
        vet: the table; it has a protocol.
        folder: the job's folder.
        profile: of the cluster that the job is meant for.
        merge: where the values of the document came from.
    """
    from cordee.spec.protocol import BUILT_IN, load_protocol

    given = str(vet.protocol)
    history = vet.history
    if isinstance(history, str) and "://" not in history and history != "site":
        history = str(folder / os.path.expandvars(os.path.expanduser(history)))
    path = given if given in BUILT_IN else folder / os.path.expanduser(given)
    if isinstance(path, Path) and not path.exists():
        return None, [_missing(given, folder, merge)]
    try:
        return load_protocol(path, profile, history=history), []
    except DocumentError as error:
        return None, list(error.findings)


def _missing(given: str, folder: Path, merge: Merge) -> Finding:
    from cordee.spec.protocol import BUILT_IN

    place = merge.place(("vet", "protocol"), Place(None, None))
    names = [path.name for path in (*folder.glob("*.yaml"), *folder.glob("*.yml"))]
    near = difflib.get_close_matches(Path(given).name, [*names, *BUILT_IN], n=1)
    return Finding(
        f"there is no protocol {given}",
        "error",
        "no-document",
        file=place.file,
        line=place.line,
        given=given,
        allowed=f"a YAML file below {folder}, or one of {', '.join(BUILT_IN)}",
        next=f"did you mean {near[0]}?" if near else "write it, or choose one that is built in",
    )
