"""The score of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cordee.insight.saturation.caps import caps_of
from cordee.insight.saturation.identity import Sums, levels, sums
from cordee.insight.saturation.result import Caps, Part, Saturation, Windows
from cordee.insight.saturation.trace import Trace
from cordee.units import natural


def score(trace: Trace, *, caps: Mapping[str, Caps] | None = None, rules: Sequence[Any] | None = None) -> Saturation:
    """Return everything that can be said of a trace.

    Args:
        caps: by model; those of the package and of the person's own settings unless given.
        rules: those of the package, the site and the person unless given.
    """
    by_model = {device.model: caps_of(device.model, trace.kind) for device in trace.devices}
    by_model.update(caps or {})
    found = levels(trace, [by_model[device.model] for device in trace.devices])
    summed = sums(found, [device.share for device in trace.devices])
    seconds = _seconds(trace)
    parts = _Parts(trace, summed, seconds)
    windows = Windows(np.zeros(0), 0.0, np.zeros((0, len(trace.devices)), dtype=np.int8), {})
    return Saturation(
        job=trace.job,
        kind=trace.kind,
        source=trace.source,
        cadence_s=trace.cadence_s,
        seconds=seconds,
        shares=parts.job(),
        devices=parts.devices(),
        nodes=parts.nodes(),
        ranks=parts.ranks(),
        windows=windows,
        diagnosis=[],
        flags=[],
        caps=[by_model[model] for model in dict.fromkeys(device.model for device in trace.devices)],
        assumed=found.assumed,
        missing=dict(trace.missing),
        remarks=list(trace.remarks),
        facts=dict(trace.facts),
    )


def _seconds(trace: Trace) -> float:
    """Return how long the job took: its own times where they are known, at least as long as was sampled."""
    sampled = float(trace.times[-1] - trace.times[0]) + trace.cadence_s
    if trace.job.started_at is None or trace.job.ended_at is None:
        return sampled
    return max(sampled, trace.job.ended_at - trace.job.started_at)


class _Parts:
    """Scores of the job and of what it is made of."""

    def __init__(self, trace: Trace, summed: Sums, seconds: float) -> None:
        self._trace, self._sums, self._seconds = trace, summed, seconds

    def job(self) -> Any:
        devices = range(len(self._trace.devices))
        weight = float(self._sums.weight.sum())
        if self._trace.job.allocated is not None and devices:
            weight *= max(1.0, self._trace.job.allocated / len(devices))
        return self._sums.shares(devices, self._trace.cadence_s, weight * self._seconds)

    def devices(self) -> list[Part]:
        return [self._part(device.key, [at], device) for at, device in enumerate(self._trace.devices)]

    def nodes(self) -> list[Part]:
        of_node: dict[str, list[int]] = {node: [] for node in self._trace.job.nodes}
        for at, device in enumerate(self._trace.devices):
            of_node.setdefault(device.node, []).append(at)
        return [self._part(node, of_node[node]) for node in sorted(of_node, key=natural)]

    def ranks(self) -> list[Part]:
        of_rank: dict[int, list[int]] = {}
        for at, device in enumerate(self._trace.devices):
            for rank in device.ranks:
                of_rank.setdefault(rank, []).append(at)
        return [self._part(str(rank), of_rank[rank]) for rank in sorted(of_rank)]

    def _part(self, key: str, columns: list[int], device: Any = None) -> Part:
        weight = float(self._sums.weight[columns].sum())
        shares = self._sums.shares(columns, self._trace.cadence_s, weight * self._seconds)
        return Part(key, shares, {}, {}, device)
