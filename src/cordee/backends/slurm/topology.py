"""Slurm's topology.yaml (25.05), and what Slurm says of its network and of the nodes of a job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cordee.backends.slurm.node.commands import SlurmError, job_record, run_command
from cordee.backends.slurm.node.topology import block_sizes, of_blocks
from cordee.core.documents.yaml_lines import read_yaml
from cordee.core.errors import CordeeError, UsageError
from cordee.core.hostlist import expand_nodes
from cordee.core.network import Network, NetworkError, Record, network_of

_ASK_S = 20.0
_JOB = re.compile(r"\d+([_+]\d+)?$")
_ALLOWED = "a list of topologies, each with `topology` and one of `tree`, `block`"
_NONE = ("", "(null)", "None assigned", "Unknown")


def read_topology_yaml(path: Path) -> Network:
    """Return the network of a topology.yaml: of several the cluster's default, else the first.

    Raises:
        DocumentError: it is not YAML.
        NetworkError: it describes no switches or blocks.
    """
    document = read_yaml(path)
    file, entries = str(path), document.values
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise NetworkError("this is no topology.yaml", file=file, given=type(entries).__name__, allowed=_ALLOWED)
    at = next((at for at, entry in enumerate(entries) if entry.get("cluster_default") is True), 0)
    entry, name = entries[at], document.as_texts((at, "topology"), entries[at].get("topology", ""))
    source = f"{file}, {name}" if len(entries) > 1 else file
    expand = _Expanding(file, document)
    if isinstance(entry.get("tree"), dict):
        records = [
            Record(
                expand.name(switch, (*where, "switch")),
                expand.list(switch, (*where, "nodes")),
                expand.list(switch, (*where, "children")),
                document.line(where),
            )
            for where, switch in expand.entries(entry["tree"], (at, "tree", "switches"))
        ]
        return network_of(records, source, file=file)
    if isinstance(entry.get("block"), dict):
        where = (at, "block", "block_sizes")
        given = entry["block"].get("block_sizes") or []
        sizes = block_sizes(given if isinstance(given, list) else [given], file, document.line(where))
        blocks = {
            expand.name(block, (*where, "block")): expand.list(block, (*where, "nodes"))
            for where, block in expand.entries(entry["block"], (at, "block", "blocks"))
        }
        return of_blocks(blocks, sizes, source, file=file)
    kinds = ", ".join(key for key in entry if key not in ("topology", "cluster_default")) or "nothing"
    raise NetworkError(
        "this topology has neither switches nor blocks",
        file=file,
        line=document.line((at,)),
        given=kinds,
        allowed=_ALLOWED,
    )


class _Expanding:
    """Takes names and lists of names out of a YAML document, as they were written."""

    def __init__(self, file: str, document: Any) -> None:
        self._file, self._document = file, document

    def entries(self, table: dict[str, Any], where: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        found = table.get(where[-1])
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            line, key = self._document.line(where), str(where[-1])
            raise NetworkError(f"`{key}` is no list", file=self._file, line=line, given=found, allowed=f"{key}: [...]")
        return [((*where, at), entry) for at, entry in enumerate(found)]

    def name(self, entry: dict[str, Any], where: tuple[Any, ...]) -> str:
        key = str(where[-1])
        name = str(self._document.as_texts(where, entry.get(key, "")))
        if not name:
            line = self._document.line(where)
            raise NetworkError(
                f"this has no `{key}`", file=self._file, line=line, given=list(entry), allowed=f"{key}: NAME"
            )
        return name

    def list(self, entry: dict[str, Any], where: tuple[Any, ...]) -> list[str]:
        text = self._document.as_texts(where, entry.get(str(where[-1]), ""))
        try:
            return expand_nodes(",".join(map(str, text)) if isinstance(text, list) else str(text or ""))
        except CordeeError as error:
            line = self._document.line(where)
            raise NetworkError(
                error.text, file=self._file, line=line, given=error.given, allowed=error.allowed
            ) from None


def nodes_of_job(job: str) -> list[str] | None:
    """Return the nodes of anybody's job, in Slurm's order; None when Slurm knows of no such job, or it had none yet.

    Raises:
        UsageError: this is no id of a job.
        SlurmError: neither the controller nor accounting answers.
    """
    if not _JOB.match(job):
        raise UsageError("this is no id of a job of Slurm", given=job, allowed="1234, 1234_5, 1234+1")
    record, trouble = None, None
    try:
        record = job_record(job, timeout_s=_ASK_S)
    except SlurmError as error:
        trouble = error
    nodes = (record or {}).get("NodeList", "")
    if nodes in _NONE:
        argv = ["sacct", "--noheader", "--allocations", "--parsable2", "--format=NodeList", f"--jobs={job}"]
        try:
            nodes = next(
                (line.strip() for line in run_command(argv, timeout_s=_ASK_S).splitlines() if line.strip()), ""
            )
        except SlurmError:
            if trouble is not None:
                raise trouble from None
    return expand_nodes(nodes) if nodes not in _NONE else None
