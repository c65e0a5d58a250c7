"""How many cores fall to each rank: what its CPU time is compared with."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from cordee.machine.cgroups import quota_cores
from cordee.telemetry.node.catalogue import described
from cordee.telemetry.node.samplers._base import NAN
from cordee.telemetry.node.samplers.rank_part import RankPart
from cordee.telemetry.node.samplers.tree import TreeLook

_AGAIN_EVERY = 60
_UNKNOWN = "the kernel does not tell the CPUs that the rank may use"


class CoreShares(RankPart):
    """Each CPU of the ranks' affinity masks counts 1/n where n ranks may use it; all together stay below the quota.

    A program that pins its threads narrows their masks one by one, so a rank's mask is all CPUs that any of its
    processes was ever seen to have. Processes are asked when they are new, all of them and the quota once a minute.

    Args:
        proc: where /proc is.
        sharing: how many of such nodes share this machine (nodes of a local run).
    """

    def __init__(self, proc: str = "/proc", sharing: int = 1) -> None:
        super().__init__()
        self._proc = proc
        self._sharing = sharing
        self._roots: dict[int, int] = {}
        self._masks: dict[int, frozenset[int]] = {}
        self._asked: set[int] = set()
        self._shares: dict[int, list[float]] = {}
        self._samples = 0

    def metrics(self) -> list[dict[str, str]]:
        """Return the one metric."""
        return [described("cpu_share_cores", "sched_getaffinity, cgroup quota")]

    def sample(
        self, roots: Mapping[int, int], looks: Mapping[int, Optional[TreeLook]], elapsed_s: float
    ) -> dict[int, list[float]]:
        """Return the cores of each rank."""
        again = self._samples % _AGAIN_EVERY == 0
        self._samples += 1
        alive = {rank: look for rank, look in looks.items() if look is not None}
        now = {rank: roots[rank] for rank in alive}
        changed = again or now != self._roots
        kept = {rank: mask for rank, mask in self._masks.items() if now.get(rank) == self._roots[rank]}
        asked = set() if again else self._asked
        self._roots, self._masks, self._asked = now, {}, set()
        for rank, look in alive.items():
            mask = kept.get(rank, frozenset())
            fresh = [pid for pid in look.members if pid not in asked or rank not in kept]
            self._masks[rank] = mask.union(*map(_affinity, fresh)) if fresh else mask
            self._asked.update(look.members)
            changed = changed or self._masks[rank] != mask
        if changed:
            self._shares = _share(self._masks, self._sharing, quota_cores(self._proc))
        unknown = [rank for rank, mask in self._masks.items() if not mask]
        self.missing = dict.fromkeys(["cpu_share_cores"], _UNKNOWN) if unknown else {}
        return self._shares

    def facts(self, rank: int) -> dict[str, Any]:
        """Return the CPUs that the rank may use."""
        return {"cpus": sorted(self._masks[rank])} if rank in self._masks else {}


def _share(masks: Mapping[int, frozenset[int]], sharing: int, quota: Optional[float]) -> dict[int, list[float]]:
    """Return the cores of each rank, NaN for one whose mask is not known."""
    users: dict[int, int] = {}
    for mask in masks.values():
        for cpu in mask:
            users[cpu] = users.get(cpu, 0) + 1
    shares = {rank: sum(1 / users[cpu] for cpu in mask) for rank, mask in masks.items()}
    whole = sum(shares.values())
    most = whole / sharing if quota is None else min(quota, whole / sharing)
    return {rank: [share * most / whole] if share else [NAN] for rank, share in shares.items()}


def _affinity(pid: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()
