"""The loading of one data set by all ranks of a run, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cordee.systems.data.loading.running_totals import TOTALS, LoadingTotals

MEASURED, DECLARED = "cordee data bench", "profile"


@dataclass(frozen=True)
class RankLoad:
    """What one rank loaded, over all of its attempts; None: nothing was told for long enough.

    Attributes:
        span_s: seconds of which it told.
        wait_s: what the training waited for samples in all; `wait_share`: of the time told of, 0-1.
        wait_per_step_s, step_s: per batch that was given.
        reading_share: of the time in which at least one request was under way.
        bytes_per_s: over all the time; `reading_bytes_per_s`: while a request was under way.
    """

    rank: int
    node: str | None
    span_s: float
    totals: Mapping[str, float]
    wait_share: float | None
    wait_per_step_s: float | None
    step_s: float | None
    reading_share: float | None
    bytes_per_s: float | None
    samples_per_s: float | None
    reading_bytes_per_s: float | None

    @property
    def wait_s(self) -> float:
        """Seconds that the training waited in all."""
        return self.totals["wait_seconds"]


@dataclass(frozen=True)
class StorageLimit:
    """What storage can give: bytes per second, for each host or for all together; `source` says who says so."""

    bytes_per_s: float
    each_host: bool
    source: str


@dataclass(frozen=True)
class Load:
    """One data set of a run.

    Attributes:
        kind, place: as the plan has them; None for one that is not in `[data]`.
        totals: sums over ranks and attempts.
        epoch, position: where the training is now: samples given since the very beginning.
        requests: (not larger than bytes, how many), sorted.
        limit: None: nobody measured or declared one; `hosts`: machines that read.
    """

    name: str
    kind: str | None
    place: str | None
    ranks: list[RankLoad]
    totals: Mapping[str, float]
    epoch: int | None
    position: int | None
    requests: list[tuple[int, int]]
    limit: StorageLimit | None
    hosts: int
    told: list[LoadingTotals] = field(repr=False, default_factory=list)

    @property
    def slowest(self) -> RankLoad | None:
        """The rank that waited for the largest share of its time."""
        known = [rank for rank in self.ranks if rank.wait_share is not None]
        return max(known, key=lambda rank: rank.wait_share or 0.0, default=None)

    @property
    def wait_share(self) -> float | None:
        """Share of the time in which a rank waited, the mean over the ranks."""
        return _mean([rank.wait_share for rank in self.ranks])

    @property
    def wait_per_step_s(self) -> float | None:
        """Seconds that a rank waited in a step, the mean over the ranks."""
        return _mean([rank.wait_per_step_s for rank in self.ranks])

    @property
    def step_s(self) -> float | None:
        """Seconds of a step, the mean over the ranks."""
        return _mean([rank.step_s for rank in self.ranks])

    @property
    def reading_share(self) -> float | None:
        """Share of the time in which a rank had a request under way, the mean over the ranks."""
        return _mean([rank.reading_share for rank in self.ranks])

    @property
    def bytes_per_s(self) -> float | None:
        """Of all ranks together, over all the time."""
        return _sum([rank.bytes_per_s for rank in self.ranks])

    @property
    def samples_per_s(self) -> float | None:
        """Of all ranks together."""
        return _sum([rank.samples_per_s for rank in self.ranks])

    @property
    def share_of_limit(self) -> float | None:
        """What was read, as a share of what storage can give; None: one of them is not known."""
        if self.limit is None or self.bytes_per_s is None:
            return None
        return self.bytes_per_s / (self.limit.bytes_per_s * (self.hosts if self.limit.each_host else 1))

    @property
    def median_request_bytes(self) -> int | None:
        """Half of the requests were not larger than this, a power of two; None without requests."""
        half, seen = sum(count for _, count in self.requests) / 2, 0
        for size, count in self.requests:
            seen += count
            if seen >= half:
                return size
        return None

    @property
    def advised_mean_bytes(self) -> float | None:
        """Mean of the stretches that the kernel was asked to read ahead, which is what storage saw; None: none were."""
        return self.totals["advised_bytes"] / self.totals["advised"] if self.totals["advised"] else None

    @property
    def opens_per_sample(self) -> float | None:
        """Files opened for a sample: about 1 where every sample is a file."""
        return self.totals["opens"] / self.totals["samples"] if self.totals["samples"] else None


def make_load(
    name: str,
    told: Sequence[LoadingTotals],
    *,
    nodes: Mapping[int, str],
    hosts: Mapping[str, str],
    planned: Mapping[str, object] | None,
) -> Load:
    """Return the loading of one data set.

    Args:
        nodes: where each rank is now; `hosts`: the machine of each node, where that is known.
        planned: what plan.json has of the data set.
    """
    of_rank: dict[int, list[LoadingTotals]] = {}
    for one in told:
        of_rank.setdefault(one.rank, []).append(one)
    requests: Counter[int] = Counter()
    for one in told:
        requests.update({size: int(count) for size, count in one.requests.items()})
    newest = max(told, key=lambda one: (one.attempt, float(one.times[-1])))
    limits = [limit for one in told if (limit := one.last("limit_bytes_per_second"))]
    epoch, position = newest.last("epoch"), newest.last("position")
    where = [nodes.get(rank) for rank in of_rank]
    return Load(
        name=name,
        kind=str(planned["kind"]) if planned else None,
        place=str(planned["place"]) if planned and planned["place"] is not None else None,
        ranks=[_rank_load(rank, nodes.get(rank), parts) for rank, parts in sorted(of_rank.items())],
        totals={key: sum(one.total(key) for one in told) for key in TOTALS},
        epoch=None if epoch is None else int(epoch),
        position=None if position is None else int(position),
        requests=sorted(requests.items()),
        limit=_limit(limits, planned),
        hosts=max(1, len({hosts.get(node, node) for node in where if node is not None})),
        told=list(told),
    )


def _limit(told: Sequence[float], planned: Mapping[str, object] | None) -> StorageLimit | None:
    if told:
        return StorageLimit(float(np.median(told)), True, MEASURED)
    for key, each_host in (("node_bandwidth_bytes_per_s", True), ("bandwidth_bytes_per_s", False)):
        declared = planned.get(key) if planned else None
        if isinstance(declared, (int, float)) and declared > 0:
            return StorageLimit(float(declared), each_host, DECLARED)
    return None


def _rank_load(rank: int, node: str | None, parts: Sequence[LoadingTotals]) -> RankLoad:
    span = sum(one.span_s for one in parts)
    during = {name: sum(one.during(name) for one in parts) for name in TOTALS}

    def per(name: str, below: float) -> float | None:
        return during[name] / below if below > 0 else None

    wait = per("wait_seconds", span)
    return RankLoad(
        rank=rank,
        node=node,
        span_s=span,
        totals={name: sum(one.total(name) for one in parts) for name in TOTALS},
        wait_share=None if wait is None else min(1.0, wait),
        wait_per_step_s=per("wait_seconds", during["batches"]),
        step_s=span / during["batches"] if during["batches"] > 0 else None,
        reading_share=per("busy_seconds", span),
        bytes_per_s=per("bytes", span),
        samples_per_s=per("samples", span),
        reading_bytes_per_s=per("bytes", during["busy_seconds"]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
