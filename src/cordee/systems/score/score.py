"""The score of a trace, and all that stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cordee.core.units import natural
from cordee.systems.score import side_metrics as beside
from cordee.systems.score.diagnosis.diagnose import Diagnosed, diagnose
from cordee.systems.score.diagnosis.flags import flags
from cordee.systems.score.diagnosis.rules import ScoreRule, load_rules
from cordee.systems.score.features import window_features
from cordee.systems.score.identity import Sums, levels, sums
from cordee.systems.score.rank_scores import rank_sums
from cordee.systems.score.result import Saturation, ScorePart, ScoreShares
from cordee.systems.score.roofs import CapsTable, read_caps
from cordee.systems.score.trace.model import ScoredDevice, ScoreTrace
from cordee.systems.score.windows import cut

LEAST_S = 5.0  # of samples; in less there is little but the start of a program


def score(
    trace: ScoreTrace,
    *,
    caps: CapsTable | None = None,
    rules: Sequence[ScoreRule] | None = None,
    least_s: float = LEAST_S,
) -> Saturation:
    """Return everything that can be said of a trace: no scores and no diagnosis where it is shorter than `least_s`.

    Args:
        caps: those of the package and of the person's own settings unless given.
        rules: those of the package, the site and the person unless given.

    Raises:
        DocumentError: settings of caps or rules are wrong.
    """
    table = read_caps() if caps is None else caps
    of_model = {
        model: table.of(model, trace.site_gpus) for model in dict.fromkeys(device.model for device in trace.devices)
    }
    of_device = [of_model[device.model] for device in trace.devices]
    seconds = _seconds(trace)
    sampled_s = len(trace.times) * trace.cadence_s
    short = sampled_s < least_s
    windows = cut(trace.times, trace.cadence_s, len(trace.devices))
    found = levels(trace, of_device, windows)
    features = window_features(trace, found, of_device, windows)
    diagnosed = diagnose(trace, found, features, windows, load_rules() if rules is None else rules)
    summed = sums(found, [device.share for device in trace.devices])
    parts = _Parts(trace, summed, seconds, diagnosed, scored=not short)
    shares, devices, nodes = parts.job(), parts.devices(), parts.nodes()
    balance = beside.balance(devices)
    confidence, reasons = beside.confidence(trace, found, shares, of_device)
    if short and shares.device_seconds > 0:
        reasons = [f"only {sampled_s:.1f} s were sampled: a score needs at least {least_s:g} s"]
    energy, energy_remark = beside.energy_joules(trace, found)
    per_second = beside.rates(trace, seconds)
    mfu, mfu_remark = beside.mfu(trace, of_device, per_second)
    remarks = [*trace.remarks, *(remark for remark in (energy_remark, mfu_remark, _deep(shares)) if remark)]
    return Saturation(
        job=trace.job,
        kind=trace.kind,
        source=trace.source,
        cadence_s=trace.cadence_s,
        seconds=seconds,
        shares=shares,
        devices=devices,
        nodes=nodes,
        ranks=parts.ranks(),
        windows=diagnosed.windows,
        diagnosis=[] if short else diagnosed.causes,
        flags=flags(trace, diagnosed, devices, nodes, balance),
        caps=list(of_model.values()),
        balance=balance,
        clock_ratio=beside.clock_ratio(trace, found) if trace.kind == "gpu" else None,
        confidence=confidence,
        confidence_reasons=reasons,
        assumed=found.assumed,
        energy_joules=energy,
        mfu=mfu,
        goodput_ratio=trace.job.productive_ratio,
        rates=per_second,
        missing=dict(trace.missing),
        remarks=remarks,
        facts=dict(trace.facts),
    )


def _seconds(trace: ScoreTrace) -> float:
    """Return how long the job took: its own times where they are known, at least as long as was sampled."""
    sampled = float(trace.times[-1] - trace.times[0]) + trace.cadence_s
    if trace.job.started_at is None or trace.job.ended_at is None:
        return sampled
    return max(sampled, trace.job.ended_at - trace.job.started_at)


def _deep(shares: ScoreShares) -> str:
    if shares.depth is None or shares.depth <= 1.05:
        return ""
    return (
        f"depth is above 1 ({shares.depth:.2f}): memory moved more than the few active SMs account for, by copy engines or because"
        " some SMs suffice to fill it"
    )


class _Parts:
    """Scores of the job and of what it is made of."""

    def __init__(self, trace: ScoreTrace, summed: Sums, seconds: float, diagnosed: Diagnosed, *, scored: bool) -> None:
        self._trace, self._sums, self._seconds, self._diagnosed = trace, summed, seconds, diagnosed
        self._scored = scored

    def job(self) -> ScoreShares:
        weight = float(self._sums.weight.sum())
        if self._trace.job.allocated is not None and self._trace.kind == "gpu":
            weight *= max(1.0, self._trace.job.allocated / len(self._trace.devices))
        elif len(self._trace.job.nodes) > len(self._trace.devices) and self._trace.kind == "cpu":
            weight = float(len(self._trace.job.nodes))
        return self._shares(self._sums, range(len(self._trace.devices)), weight * self._seconds)

    def devices(self) -> list[ScorePart]:
        return [self._part(device.key, [at], device) for at, device in enumerate(self._trace.devices)]

    def nodes(self) -> list[ScorePart]:
        of_node: dict[str, list[int]] = {node: [] for node in self._trace.job.nodes}
        for at, device in enumerate(self._trace.devices):
            of_node.setdefault(device.node, []).append(at)
        return [self._part(node, of_node[node]) for node in sorted(of_node, key=natural)]

    def ranks(self) -> list[ScorePart]:
        """Return the scores of ranks: of the GPUs that are theirs, or of the cores that fall to them."""
        of_rank: dict[int, list[int]] = {}
        for at, device in enumerate(self._trace.devices):
            for rank in device.ranks:
                of_rank.setdefault(rank, []).append(at)
        own = rank_sums(self._trace) if self._trace.kind == "cpu" else {}
        found = []
        for rank in sorted(of_rank):
            part = self._part(str(rank), of_rank[rank])
            if rank in own:
                shares = self._shares(own[rank], [0], self._seconds)
                part = ScorePart(part.key, shares, part.classes, part.means)
            found.append(part)
        return found

    def _part(self, key: str, columns: list[int], device: ScoredDevice | None = None) -> ScorePart:
        weight = float(self._sums.weight[columns].sum())
        shares = self._shares(self._sums, columns, weight * self._seconds)
        return ScorePart(key, shares, self._diagnosed.shares(columns), self._diagnosed.means(columns), device)

    def _shares(self, summed: Sums, columns: Sequence[int], seconds: float) -> ScoreShares:
        shares = summed.shares(columns, self._trace.cadence_s, seconds)
        return shares if self._scored else replace(shares, score=None, time=None, breadth=None, depth=None)
