"""The files that a vetting leaves for the rest of the script."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any, Optional, Union

from cordee.core.errors import EXIT_ABORT, EXIT_DONE, EXIT_EXCLUDE, CordeeError
from cordee.core.hostlist import fold_nodes
from cordee.runs.folder import write_atomically

CODES = {"continue": EXIT_DONE, "exclude": EXIT_EXCLUDE, "abort": EXIT_ABORT}
_MODE = 0o644


def usable_nodes(document: dict[str, Any]) -> list[str]:
    """Return the nodes that may be used, in the document's order: those that are not excluded.

    After an abort only those that were found healthy or suspect count.
    """
    excluded = set(document["exclude"])
    left = [node for node in document["nodes"] if node["node"] not in excluded]
    if document["verdict"] == "abort":
        left = [node for node in left if node["verdict"] in ("healthy", "suspect")]
    return [node["node"] for node in left]


def write_results(folder: Union[str, Path], document: dict[str, Any], identity: str) -> None:
    """Write vet.json, exclude.txt, nodes.txt and, last, vet.env; each is whole or not there.

    Args:
        folder: is made when it is not there.
        document: `cordee.vetting/1`.
        identity: of the vetting.

    Raises:
        CordeeError: the folder cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CordeeError(
            f"cannot make the folder of results: {error.strerror}", given=str(folder), next="choose another with --dir"
        ) from error
    usable = usable_nodes(document)
    files = {
        "vet.json": json.dumps(document, indent=1) + "\n",
        "exclude.txt": "".join(f"{node}\n" for node in document["exclude"]),
        "nodes.txt": "".join(f"{node}\n" for node in usable),
        "vet.env": _shell(
            CORDEE_VET_ID=identity,
            CORDEE_VET_VERDICT=document["verdict"],
            CORDEE_VET_CODE=CODES[document["verdict"]],
            CORDEE_VET_EXCLUDE=fold_nodes(document["exclude"]),
            CORDEE_VET_NODES=fold_nodes(usable),
            CORDEE_VET_HEALTHY=len(usable),
        ),
    }
    for name, text in files.items():
        write_atomically(folder / name, text, _MODE)


def code_of(folder: Union[str, Path], identity: str, since: float) -> Optional[int]:
    """Return the exit code that a vetting of this identity has left in the folder, None when it has left none.

    Args:
        since: what was written before this moment (UTC epoch seconds) does not count.
    """
    path = Path(folder) / "vet.env"
    try:
        if os.stat(path).st_mtime < since:
            return None
        lines = shlex.split(path.read_text())
    except (OSError, ValueError):
        return None
    found = dict(line.partition("=")[::2] for line in lines)
    code = found.get("CORDEE_VET_CODE", "")
    return int(code) if found.get("CORDEE_VET_ID") == identity and code.isdigit() else None


def _shell(**values: Any) -> str:
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())
