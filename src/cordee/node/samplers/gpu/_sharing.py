"""Who else uses a GPU: what /proc tells of the processes that hold its memory."""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Collection, Optional, Sequence

_JOB = re.compile(r"/job_(\d+)(?:/|$)")
_MOST_ANCESTORS = 64
_SERVICE = "nvidia-cuda-mps"  # it holds memory in the name of others


class Sharing:
    """Tells the processes of this job from others.

    A process is the job's when it descends from one of its ranks or is in the same Slurm job; where neither is known,
    all of this user's are. Processes that /proc does not show (of the host, seen from a container) cannot be told.

    Args:
        own: returns the main processes of the job's ranks on this node; None: not known.
        proc: where /proc is.
    """

    def __init__(self, own: Optional[Callable[[], Collection[int]]] = None, proc: str = "/proc") -> None:
        self._own = own
        self._proc = proc

    def facts(self, pids: Sequence[int]) -> dict[str, Any]:
        """Return `shared`: words on others, empty when there are none; `unseen_processes`: how many cannot be told."""
        kinds = [self._kind(pid) for pid in pids]
        others = [kind for kind in kinds if kind]
        unseen = sum(kind is None for kind in kinds)
        words = ", ".join(f"{others.count(kind)} of {kind}" for kind in sorted(set(others)))
        facts: dict[str, Any] = {
            "shared": f"processes hold its memory that are not this job's: {words}" if words else ""
        }
        if unseen:
            facts["unseen_processes"] = unseen
        return facts

    def _kind(self, pid: int) -> Optional[str]:
        """Return whose a process is: empty for this job's, None where that cannot be told."""
        try:
            owner = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None
        if self._read(pid, "comm").startswith(_SERVICE):
            return None
        if owner != os.getuid():
            return "other users"
        roots = set(self._own()) if self._own else set()
        if self._descends(pid, roots):
            return ""
        job, ours = (_JOB.search(self._read(of, "cgroup").replace("\n", "/\n")) for of in (pid, "self"))
        if job and ours:
            return "" if job[1] == ours[1] else "another job of this user"
        return "this user outside of this job" if roots else ""

    def _descends(self, pid: int, roots: set[int]) -> bool:
        for _ in range(_MOST_ANCESTORS if roots else 0):
            if pid in roots:
                return True
            fields = self._read(pid, "stat").rpartition(")")[2].split()
            if len(fields) < 2 or fields[1] in ("0", "1"):
                return False
            pid = int(fields[1])
        return False

    def _read(self, pid: object, name: str) -> str:
        try:
            with open(f"{self._proc}/{pid}/{name}", errors="replace") as file:
                return file.read()
        except OSError:
            return ""
