"""Who else uses a GPU: what /proc tells of the processes that hold its memory."""

from __future__ import annotations

import os
import re
from typing import Any, Optional, Sequence

from cordee.telemetry.node.samplers.gpu._base import Roots

_JOB = re.compile(r"/job_(\d+)(?:/|$)")
_MOST_ANCESTORS = 64
_MOST_KNOWN = 64
_SERVICE = "nvidia-cuda-mps"  # it holds memory in the name of others


class Sharing:
    """Tells the processes of this job from others.

    A process is the job's when it descends from one of its ranks or is in the same Slurm job; where neither is known,
    all of this user's are. Processes that /proc does not show (of the host, seen from a container) cannot be told.

    Args:
        own: the main processes of the job's ranks on this node; None: not known.
        proc: where /proc is.
    """

    def __init__(self, own: Optional[Roots] = None, proc: str = "/proc") -> None:
        self._own = own
        self._proc = proc
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[str, Any]] = {}
        self._ranks: dict[int, int] = {}

    def facts(self, pids: Sequence[int]) -> dict[str, Any]:
        """Return `shared`: words on others, empty when there are none.

        And, where there are any, `ranks`: those seen to hold its memory; `unseen_processes`: how many cannot be told.
        /proc is only asked about processes and ranks that were not there the last time.
        """
        roots = {pid: rank for rank, pid in self._own().items()} if self._own else {}
        key = (tuple(pids), tuple(sorted(roots)))
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._look(pids, roots)
        return self._known[key]

    def _look(self, pids: Sequence[int], roots: dict[int, int]) -> dict[str, Any]:
        ranks: set[int] = set()
        others: list[str] = []
        unseen = 0
        for pid in pids:
            root = self._root_of(pid, roots)
            if root is not None:
                self._ranks[pid] = roots[root]
            if pid in self._ranks and os.path.exists(f"{self._proc}/{pid}"):  # also when its rank ended before it
                ranks.add(self._ranks[pid])
                continue
            kind = self._kind(pid, bool(roots))
            if kind is None:
                unseen += 1
            elif kind:
                others.append(kind)
        words = ", ".join(f"{others.count(kind)} of {kind}" for kind in sorted(set(others)))
        facts: dict[str, Any] = {
            "shared": f"processes hold its memory that are not this job's: {words}" if words else ""
        }
        if ranks:
            facts["ranks"] = sorted(ranks)
        if unseen:
            facts["unseen_processes"] = unseen
        return facts

    def _kind(self, pid: int, roots_known: bool) -> Optional[str]:
        """Return whose a process is that descends from no rank: empty for this job's, None where that cannot be told."""
        try:
            owner = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None
        if self._read(pid, "comm").startswith(_SERVICE):
            return None
        if owner != os.getuid():
            return "other users"
        job, ours = (_JOB.search(self._read(of, "cgroup").replace("\n", "/\n")) for of in (pid, "self"))
        if job and ours:
            return "" if job[1] == ours[1] else "another job of this user"
        return "this user outside of this job" if roots_known else ""

    def _root_of(self, pid: int, roots: dict[int, int]) -> Optional[int]:
        for _ in range(_MOST_ANCESTORS if roots else 0):
            if pid in roots:
                return pid
            fields = self._read(pid, "stat").rpartition(")")[2].split()
            if len(fields) < 2 or fields[1] in ("0", "1"):
                return None
            pid = int(fields[1])
        return None

    def _read(self, pid: object, name: str) -> str:
        try:
            with open(f"{self._proc}/{pid}/{name}", errors="replace") as file:
                return file.read()
        except OSError:
            return ""
