"""The site around the runs: what Slurm says of nodes and jobs, and what vettings have said of nodes; asked seldom."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from cordee.backends.slurm.node.commands import parse_records, run_command
from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes
from cordee.systems.rules.views import places_again, site_rules
from cordee.systems.vetting.views import recent_verdicts

T = TypeVar("T")
_SLURM_S = 8.0
_SLURM_EVERY_S = 30.0
_HISTORY_EVERY_S = 60.0
_MOST_JOBS = 5000
_BETWEEN = "\x1f"  # what people name their jobs may hold any other sign


@dataclass(frozen=True)
class KnownFact(Generic[T]):
    """What was learnt, or why it was not."""

    value: T
    why: str = ""


class Seldom(Generic[T]):
    """Something that is asked again only after a while, by one thread at a time; others get what was known.

    Args:
        ask: raises CordeeError where there is no answer.
        nothing: what is known without one.
    """

    def __init__(self, ask: Callable[[], T], nothing: T, every_s: float) -> None:
        self._ask, self._every_s = ask, every_s
        self._known, self._at = KnownFact(nothing, "it was not asked yet"), -every_s
        self._nothing = nothing
        self._lock = threading.Lock()

    def get(self) -> KnownFact[T]:
        """Return what is known."""
        if time.monotonic() - self._at >= self._every_s:
            with self._lock:
                if time.monotonic() - self._at >= self._every_s:
                    try:
                        self._known = KnownFact(self._ask())
                    except CordeeError as error:
                        self._known = KnownFact(self._nothing, error.text)
                    self._at = time.monotonic()
        return self._known


class RunsSite:
    """What is known of the machine that the runs are on, and of the nodes in all these runs.

    Args:
        folders: that hold runs.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self.again: Seldom[list[dict[str, Any]]] = Seldom(lambda: _places_again(folders), [], _HISTORY_EVERY_S)
        self.slurm: Seldom[dict[str, Any]] = Seldom(_ask_slurm, {"nodes": {}, "jobs": []}, _SLURM_EVERY_S)
        self.verdicts: Seldom[dict[str, dict[str, int]]] = Seldom(recent_verdicts, {}, _HISTORY_EVERY_S)


def _places_again(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the nodes and switches in the findings of several runs, as the site's rules count them."""
    return places_again(folders, site_rules(None))


def _ask_slurm() -> dict[str, Any]:
    """Return `{nodes: {name: {state, partition, reason}}, jobs: [{job, user, name, state, partition, nodes, ...}]}`."""
    if shutil.which("squeue") is None:
        raise CordeeError("there is no Slurm on this machine", next="run `cordee serve` on a login node of the cluster")
    nodes: dict[str, dict[str, Any]] = {}
    for record in parse_records(run_command(["scontrol", "show", "node", "--oneliner"], timeout_s=_SLURM_S)):
        if "NodeName" in record:
            nodes[record["NodeName"]] = {
                "state": record.get("State", "UNKNOWN").lower(),
                "partition": record.get("Partitions") or None,
                "reason": record.get("Reason") or None,
                "gres": record.get("Gres") or None,
            }
    jobs = []
    form = _BETWEEN.join(("%i", "%u", "%j", "%T", "%P", "%D", "%S", "%L", "%N", "%r", "%k"))
    lines = run_command(["squeue", "--noheader", f"--format={form}"], timeout_s=_SLURM_S).splitlines()
    for line in lines[:_MOST_JOBS]:
        fields = [field.strip() for field in line.split(_BETWEEN)]
        if len(fields) == 11:
            jobs.append(_job(fields))
    return {"nodes": nodes, "jobs": jobs}


def _job(fields: list[str]) -> dict[str, Any]:
    keys = ("job", "user", "name", "state", "partition", "count", "start", "left", "nodes", "reason", "comment")
    row: dict[str, Any] = dict(zip(keys, fields, strict=True))
    row["state"] = row["state"].lower()
    try:
        row["nodes"] = expand_nodes(row["nodes"])
    except CordeeError:
        row["nodes"] = []
    comment = row.pop("comment")
    row["run"] = comment.removeprefix("cordee:") if comment.startswith("cordee:") else None
    return row
