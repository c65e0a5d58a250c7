"""What a node reads from and writes to shared file systems: Lustre's and NFS's own counters, all mounts together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Optional, Union

from cordee.telemetry.node.catalogue import described
from cordee.telemetry.node.samplers._base import FIRST, NAN, Sampler
from cordee.telemetry.node.samplers.storage.mounts import COUNTERS, Counters, MountTable, SampledMount

if TYPE_CHECKING:
    from cordee.telemetry.node.samplers.storage.lustre import LustreClient

# In the order of COUNTERS; the last one is seconds spent in requests per second: the requests under way.
_NAMES = (
    "storage_read_bytes_per_second",
    "storage_write_bytes_per_second",
    "storage_read_operations_per_second",
    "storage_write_operations_per_second",
    "storage_open_operations_per_second",
    "storage_metadata_operations_per_second",
    "storage_requests",
)
_SOURCES = {"lustre": "Lustre llite stats (as programs ask)", "nfs": "NFS mountstats (to and from servers)"}
_NONE = "this node mounts no Lustre and no NFS"
_MOST_TOLD = 32


class StorageSampler(Sampler):
    """Rates summed over the Lustre and NFS mounts of a node, whoever on the node causes them.

    It reads files of /proc and /sys alone and never asks a server: a file system that hangs is measured like any other.
    A mount that appears while the run goes on is counted from then on; one whose counters went back is left out of one
    sample. Bind mounts of one NFS client count once.

    Args:
        node: the node's name.
        proc, sys: where /proc and /sys are.
    """

    def __init__(self, node: str, proc: str = "/proc", sys: str = "/sys") -> None:
        super().__init__()
        self._node = node
        self._mounts = MountTable(proc)
        self._roots = proc, sys
        self._lustre: Optional[LustreClient] = None
        self._before: dict[str, Counters] = {}
        self._at: Optional[float] = None
        self._kinds: set[str] = set()
        self._told: list[dict[str, Any]] = []

    def probe(self) -> Optional[str]:
        """Return None: a mount may come at any time."""
        return None

    def metrics(self) -> list[dict[str, str]]:
        """Return the metrics of what was mounted so far; none before the first mount."""
        if not self._kinds:
            return []
        source = " + ".join(_SOURCES[kind] for kind in sorted(self._kinds))
        return [described(name, source) for name in _NAMES]

    def devices(self) -> list[Union[str, int]]:
        """Return the node's name."""
        return [self._node]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return the shared file systems: where mounted, of which type, from where, whether counted, and why not."""
        return {self._node: {"storage": self._told}}

    def sample(self) -> list[float]:
        """Return the node's values."""
        self.missing = {}
        now = time.monotonic()
        elapsed_s = 0.0 if self._at is None else now - self._at
        self._at = now
        mounts, unread = self._mounts.look()
        found, unseen = self._counters(mounts)
        self._kinds.update(key.partition(":")[0] for key in found)
        self._told = [_about(mount, unseen) for mount in mounts if mount.shared][:_MOST_TOLD]
        before, self._before = self._before, found
        reason = unread or "; ".join(unseen.values()) or _uncounted(mounts)
        if not self._kinds:
            self.missing = dict.fromkeys(_NAMES, reason)
            return []
        return [self._rate(at, before, found, elapsed_s, reason) for at in range(len(COUNTERS))]

    def close(self) -> None:
        """Close the files."""
        self._mounts.close()
        if self._lustre is not None:
            self._lustre.close()

    def _counters(self, mounts: list[SampledMount]) -> tuple[dict[str, Counters], dict[str, str]]:
        """Return the counters of each file system by key, and why others have none; what is not mounted is not imported."""
        found: dict[str, Counters] = {}
        unseen: dict[str, str] = {}
        kinds = {mount.kind for mount in mounts}
        if "nfs" in kinds:
            from cordee.telemetry.node.samplers.storage.nfs import nfs_counters

            found.update(nfs_counters(mounts))
        if self._lustre is None and "lustre" in kinds:
            from cordee.telemetry.node.samplers.storage.lustre import LustreClient

            self._lustre = LustreClient(*self._roots)
        if self._lustre is not None:
            lustre, unseen = self._lustre.counters([mount for mount in mounts if mount.kind == "lustre"])
            found.update(lustre)
        return found, unseen

    def _rate(
        self, at: int, before: dict[str, Counters], found: dict[str, Counters], elapsed_s: float, reason: str
    ) -> float:
        """Return the sum over the mounts that were there at both times and were not reset."""
        total, known = 0.0, False
        why = FIRST if found else reason
        for key, counters in found.items():
            new, old = counters[at], before[key][at] if key in before else None
            if new is None:
                self.missing[_NAMES[at]] = f"{key.partition(':')[0]} does not tell it here"
                return NAN
            if old is not None and new >= old:
                total, known = total + new - old, True
        if not known or elapsed_s <= 0:
            self.missing[_NAMES[at]] = why
            return NAN
        return total / elapsed_s


def _uncounted(mounts: list[SampledMount]) -> str:
    others = sorted({mount.kind for mount in mounts if mount.shared})
    return f"{_NONE}; what it mounts, {', '.join(others)}, is not counted" if others else _NONE


def _about(mount: SampledMount, unseen: dict[str, str]) -> dict[str, Any]:
    about = {"mount": mount.point, "type": mount.kind, "from": mount.source}
    reason = unseen.get(mount.key, "") if mount.kind in _SOURCES else f"{mount.kind} is not counted"
    return {**about, "counted": not reason, "reason": reason}
