"""How many cores fall to each rank: what its CPU time is compared with."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from cordee.hardware.cgroups import quota_cores
from cordee.node.samplers.rank_part import RankPart
from cordee.node.samplers.tree import Look
from cordee.runs.catalogue import described

_QUOTA_EVERY = 60


class CoreShares(RankPart):
    """Each CPU of the ranks' affinity masks counts 1/n where n ranks may use it; all together stay below the quota.

    A program that pins its threads narrows their masks one by one, so a rank's mask is all CPUs that any of its
    processes was ever seen to have.

    Args:
        proc: where /proc is.
        sharing: how many of such nodes share this machine (nodes of a local run).
    """

    def __init__(self, proc: str = "/proc", sharing: int = 1) -> None:
        super().__init__()
        self._proc = proc
        self._sharing = sharing
        self._masks: dict[int, tuple[int, frozenset[int]]] = {}
        self._quota: Optional[float] = None
        self._samples = 0

    def metrics(self) -> list[dict[str, str]]:
        """Return the one metric."""
        return [described("cpu_share_cores", "sched_getaffinity, cgroup quota")]

    def sample(
        self, roots: Mapping[int, int], looks: Mapping[int, Optional[Look]], elapsed_s: float
    ) -> dict[int, list[float]]:
        """Return the cores of each rank."""
        if self._samples % _QUOTA_EVERY == 0:
            self._quota = quota_cores(self._proc)
        self._samples += 1
        known, self._masks = self._masks, {}
        for rank, look in looks.items():
            if look is not None:
                pid, mask = known.get(rank, (0, frozenset()))
                seen = [mask] if pid == roots[rank] else []
                self._masks[rank] = (roots[rank], frozenset().union(*seen, *map(_affinity, look.members)))
        users: dict[int, int] = {}
        for _, mask in self._masks.values():
            for cpu in mask:
                users[cpu] = users.get(cpu, 0) + 1
        shares = {rank: sum(1 / users[cpu] for cpu in mask) for rank, (_, mask) in self._masks.items()}
        most = sum(shares.values()) / self._sharing
        if self._quota is not None:
            most = min(most, self._quota)
        factor = most / sum(shares.values()) if most else 0.0
        self.missing = {}
        values = {rank: [share * factor] if share else [float("nan")] for rank, share in shares.items()}
        if not all(shares.values()):
            self.missing["cpu_share_cores"] = "the kernel does not tell the CPUs that the rank may use"
        return values

    def facts(self, rank: int) -> dict[str, Any]:
        """Return the CPUs that the rank may use."""
        return {"cpus": sorted(self._masks[rank][1])} if rank in self._masks else {}


def _affinity(pid: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()
