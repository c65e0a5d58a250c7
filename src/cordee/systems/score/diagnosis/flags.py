"""What is worth telling whatever the class: throttling, wrong precision, empty memory, idle, unequal, slow or lost devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cordee.core.findings import Finding
from cordee.core.stats import outliers_among_peers, peers_of
from cordee.systems.score.diagnosis.diagnose import Diagnosed
from cordee.systems.score.diagnosis.evidence import named, percent
from cordee.systems.score.result import ScorePart
from cordee.systems.score.trace.model import ScoredDevice

if TYPE_CHECKING:
    from cordee.systems.score.trace.model import ScoreTrace

_IN_USE = 0.2
_GIB = 1 << 30
_MOST_NAMED = 4
_LASTING_Z, _LEAST_WINDOWS = 3.0, 6


def flags(
    trace: ScoreTrace,
    diagnosed: Diagnosed,
    devices: Sequence[ScorePart],
    nodes: Sequence[ScorePart],
    balance: float | None,
) -> list[Finding]:
    """Return the findings, the grave ones first.

    Args:
        devices, nodes: with their scores and means.
        balance: the job's.
    """
    found = [
        *_clocks(trace, diagnosed),
        *_precision(trace, diagnosed),
        *_memory(trace, diagnosed),
        *_idle(trace, devices),
        *_balance(trace, devices, balance),
        *_slow(trace, diagnosed, devices),
        *_lost(trace, diagnosed),
        *_shared(trace),
        *_models(trace),
        *_missing(trace, nodes),
        *_quota(trace),
        *_starved(trace, diagnosed),
    ]
    return sorted(found, key=lambda finding: ("error", "warn", "info").index(finding.severity))


def _clocks(trace: ScoreTrace, diagnosed: Diagnosed) -> Iterator[Finding]:
    # At full load a GPU reaches its default limit too: an H200 at 694 of 700 W ran 5 % below its highest clock.
    limit = "usual at full load; a limit below the default one (`nvidia-smi -q -d POWER`) is a choice of the operators"
    rules = (
        ("thermal", 0.02, "gpu-throttled-heat", "heat held clocks down", "tell the operators: cooling, or a bad GPU"),
        ("capped", 0.05, "gpu-power-capped", "the power limit held clocks down", limit),
    )
    for feature, least, rule, text, what in rules:
        shares = _means(diagnosed, feature, len(trace.devices))
        bad = {at: share for at, share in enumerate(shares) if share >= least}
        if bad:
            severity = "warn" if feature == "thermal" or max(bad.values()) > 0.5 else "info"
            said = f"{text} for {percent(max(bad.values()))} of the time on {_which(trace, bad)}"
            yield Finding(said, severity, rule, next=what, evidence=_by_key(trace, bad))


def _precision(trace: ScoreTrace, diagnosed: Diagnosed) -> Iterator[Finding]:
    features = diagnosed.windows.features
    if "fp32" not in features or "tensor" not in features:
        return
    cells = (features["fp32"] > 0.3) & (features["tensor"] < 0.05)
    share = _share(diagnosed, cells)
    if share >= 0.1:
        at = np.flatnonzero(cells.any(axis=0))
        level = float(features["fp32"][cells].mean())
        yield Finding(
            f"fp32 units were busy ({level:.2f}) and tensor cores were not, for {percent(share)} of the time on {_which(trace, at)}",
            "warn",
            "fp32-without-tensor-cores",
            next="use bf16 (torch.autocast), or TF32: torch.set_float32_matmul_precision('high')",
            evidence={"share": share, "fp32": level},
        )


def _memory(trace: ScoreTrace, diagnosed: Diagnosed) -> Iterator[Finding]:
    memory = diagnosed.windows.features.get("memory")
    if memory is None or not np.isfinite(memory).any():
        return
    peak = float(np.nanmax(memory))
    if peak < 0.5:
        sizes = [device.memory_bytes for device in trace.devices if device.memory_bytes]
        free = f", {min(sizes) * (1 - peak) / _GIB:.0f} GiB stayed free" if sizes else ""
        yield Finding(
            f"GPU memory was never more than {percent(peak)} full{free}",
            "info",
            "gpu-memory-half-empty",
            next="a larger batch, less gradient checkpointing, or less sharding; or fewer or smaller GPUs",
            evidence={"peak": peak},
        )


def _idle(trace: ScoreTrace, devices: Sequence[ScorePart]) -> Iterator[Finding]:
    idle = {
        at: part.shares.time
        for at, part in enumerate(devices)
        if part.shares.time is not None and part.shares.time < 0.02
    }
    if idle and (trace.kind == "gpu" or len(idle) < len(devices)):
        every = "all" if len(idle) == len(devices) else f"{len(idle)} of {len(devices)}"
        yield Finding(
            f"{every} devices did nothing: {_which(trace, idle)}",
            "warn",
            "device-idle",
            next="ask for as many as the program uses, or see why it does not use them (CUDA_VISIBLE_DEVICES, world size)",
            evidence=_by_key(trace, idle),
        )


def _balance(trace: ScoreTrace, devices: Sequence[ScorePart], balance: float | None) -> Iterator[Finding]:
    if balance is None or balance >= 0.8:
        return
    scores = {at: part.shares.score for at, part in enumerate(devices) if part.shares.score is not None}
    low, high = min(scores, key=lambda at: scores[at]), max(scores, key=lambda at: scores[at])
    kind = trace.kind
    yield Finding(
        f"work is unequal (balance {balance:.2f}): {named(trace.devices[low], kind)} scores {scores[low]:.0f},"
        f" {named(trace.devices[high], kind)} {scores[high]:.0f}",
        "warn",
        "imbalance",
        next="give ranks equal work: equal batches, sharded layers of equal cost, sorted or packed sequences",
        evidence=_by_key(trace, scores),
    )


def _slow(trace: ScoreTrace, diagnosed: Diagnosed, devices: Sequence[ScorePart]) -> Iterator[Finding]:
    """One device of many with low clocks, or with more active SMs than the others that wait inside collectives meanwhile.

    As live (`straggler-rank`): among peers, which stand at the same place, and over the whole time, not in a burst.
    """
    if trace.kind != "gpu":
        return
    groups = peers_of(_places(trace))
    for feature, side, text in (
        ("clock", "low", "runs at a lower clock than its peers"),
        ("sm", "high", "works longer than its peers, which may wait for it"),
    ):
        means = {at: part.means[feature] for at, part in enumerate(devices) if feature in part.means}
        ratio = 0.05 if feature == "clock" else 0.1
        found = outliers_among_peers(means, groups, side=side, ratio=ratio)
        for third in _thirds(diagnosed, feature, len(trace.devices)) if found else ():
            lasting = outliers_among_peers(third, groups, side=side, ratio=ratio / 2, z=_LASTING_Z)
            known = {at for at, value in third.items() if value == value}
            found = {at: outlier for at, outlier in found.items() if at in lasting or at not in known}
        for at, outlier in list(found.items())[:_MOST_NAMED]:
            yield Finding(
                f"{named(trace.devices[at], trace.kind)} {text}: {outlier.value:.2f}, median {outlier.median:.2f}",
                "warn",
                "slow-rank",
                next="`cordee vet` looks at this node; leave it out of the next job",
                evidence={
                    "device": trace.devices[at].key,
                    "feature": feature,
                    "ranks": list(trace.devices[at].ranks),
                    "nodes": [trace.devices[at].node],
                    **outlier._asdict(),
                },
            )


def _places(trace: ScoreTrace) -> dict[int, dict[str, int]]:
    """Return the place in the training's parallelism of the first rank of each device, where it told one."""
    found = {}
    told = {node: about.get("devices", {}) for node, about in trace.facts.get("rank", {}).items()}
    for at, device in enumerate(trace.devices):
        for rank in device.ranks[:1]:
            place = told.get(device.node, {}).get(str(rank), {}).get("place")
            if isinstance(place, dict) and place:
                found[at] = place
    return found if len(found) == len(trace.devices) else {}


def _thirds(diagnosed: Diagnosed, feature: str, devices: int) -> Iterator[dict[int, float]]:
    """Yield the means by device in the first, second and last third of the time, where it is long enough to have them."""
    count = len(diagnosed.weight)
    if count >= _LEAST_WINDOWS:
        for part in range(3):
            span = slice(part * count // 3, (part + 1) * count // 3)
            yield dict(enumerate(_means(diagnosed, feature, devices, span)))


def _lost(trace: ScoreTrace, diagnosed: Diagnosed) -> Iterator[Finding]:
    """Devices whose samples end long before those of the others on the same node."""
    there = diagnosed.weight > 0
    if not there.any():
        return
    last = np.where(there.any(axis=0), there.shape[0] - 1 - np.argmax(there[::-1], axis=0), -1)
    of_node: dict[str, int] = {}
    for at, device in enumerate(trace.devices):
        of_node[device.node] = max(of_node.get(device.node, -1), int(last[at]))
    gone = {at: int(last[at]) for at, device in enumerate(trace.devices) if last[at] < of_node[device.node] - 1}
    if gone:
        reason = _why_gone(trace, [trace.devices[at] for at in gone])
        yield Finding(
            f"samples of {_which(trace, gone)} end before those of its neighbours{f': {reason}' if reason else ''}",
            "error",
            "gpu-lost" if trace.kind == "gpu" else "samples-end",
            next="see the kernel log of the node (XID); `cordee vet` with the protocol gpu",
            evidence={
                trace.devices[at].key: float(diagnosed.windows.starts[max(0, window)]) for at, window in gone.items()
            },
        )


def _why_gone(trace: ScoreTrace, devices: Sequence[ScoredDevice]) -> str:
    """Return what the source said of the first of these devices when it was lost, empty when it said nothing."""
    for device in devices:
        about = trace.facts.get("gpu", {}).get(device.node, {}).get("devices", {}).get(device.key, {})
        if about.get("lost"):
            return str(about["lost"])
    return next((reason for reason in trace.missing.values() if "lost" in reason.lower()), "")


def _shared(trace: ScoreTrace) -> Iterator[Finding]:
    shared = [at for at, device in enumerate(trace.devices) if device.shared]
    if shared:
        yield Finding(
            f"{_which(trace, shared)} was shared: {trace.devices[shared[0]].shared}; the score is that of all who used it",
            "warn",
            "device-shared",
            next="ask for whole GPUs (--exclusive, --gpus) before comparing scores",
            evidence={trace.devices[at].key: trace.devices[at].shared for at in shared},
        )


def _models(trace: ScoreTrace) -> Iterator[Finding]:
    models = sorted({device.model for device in trace.devices})
    if len(models) > 1:
        yield Finding(
            f"the devices are of {len(models)} models: {', '.join(model or 'not told' for model in models)}; the slowest sets the pace",
            "info",
            "models-mixed",
            next="ask for one model (--constraint, --gpus=TYPE:N)",
            evidence=models,
        )


def _missing(trace: ScoreTrace, nodes: Sequence[ScorePart]) -> Iterator[Finding]:
    seen = {rank for device in trace.devices for rank in device.ranks}
    absent = [rank for rank in range(trace.job.world_size) if rank not in seen] if seen else []
    # "Nodes" of one machine share its GPUs, which are scored once.
    telling = {node for node, about in trace.facts.get("gpu", {}).items() if about["devices"]}
    silent = [part.key for part in nodes if part.shares.device_seconds <= 0 and part.key not in telling]
    if absent and not silent:
        named_ranks = ", ".join(map(str, absent[:_MOST_NAMED])) + (", ..." if len(absent) > _MOST_NAMED else "")
        yield Finding(
            f"no samples of {len(absent)} of {trace.job.world_size} ranks ({named_ranks}): the score is that of the others",
            "warn",
            "ranks-without-samples",
            next="start every rank through `cordee record`; a sampler that was killed at its start leaves nothing",
            evidence=absent[:1000],
        )
    if silent:
        more = f" and {len(silent) - _MOST_NAMED} more" if len(silent) > _MOST_NAMED else ""
        yield Finding(
            f"no samples of {', '.join(silent[:_MOST_NAMED])}{more}: the score is that of the other nodes",
            "warn",
            "node-without-samples",
            next="see in the recording's remarks whether its sampler was refused, killed, or never started",
            evidence=silent,
        )


def _quota(trace: ScoreTrace) -> Iterator[Finding]:
    values = None if trace.node is None else trace.node.load("cpu_throttled_ratio")
    if values is None or not np.isfinite(values).any():
        return
    share = float(np.nanmax(np.nanmean(np.where(np.isfinite(values).any(axis=0), values, 0.0), axis=0)))
    if share >= 0.05:
        yield Finding(
            f"the job was stopped by its CPU quota for {percent(share)} of the time",
            "warn",
            "cpu-quota",
            next="ask for more cores, or start fewer processes and threads",
            evidence={"share": share},
        )


def _starved(trace: ScoreTrace, diagnosed: Diagnosed) -> Iterator[Finding]:
    """Tasks that wait for a CPU while the ranks do not use those that they have: somebody else does."""
    features = diagnosed.windows.features
    used = features.get("cpu" if trace.kind == "gpu" else "sm")
    if "starved" not in features or used is None:
        return
    share = _share(diagnosed, (features["starved"] > 0.5) & (used > 0.05) & (used < 0.8))
    if share >= 0.2:
        yield Finding(
            f"for {percent(share)} of the time tasks on the job's nodes waited for a CPU although its ranks did not use all that they have:"
            " others use these cores, or all ranks sit on a few of them",
            "warn",
            "cpu-contention",
            next="ask for whole nodes or cores of your own, and look at the binding of ranks",
            evidence={"share": share},
        )


def _means(diagnosed: Diagnosed, feature: str, devices: int, span: slice = slice(None)) -> list[float]:
    """Return the mean of a feature by device over the windows of `span` in which it was in use, NaN where not known."""
    features = diagnosed.windows.features
    if feature not in features:
        return [float("nan")] * devices
    values, use = features[feature][span], features["graphics"][span]
    weight = np.where((use > _IN_USE) & np.isfinite(values), diagnosed.weight[span], 0.0)
    total = weight.sum(axis=0)
    summed = (np.nan_to_num(values) * weight).sum(axis=0)
    mean: list[float] = np.divide(summed, total, out=np.full(devices, np.nan), where=total > 0).tolist()
    return mean


def _share(diagnosed: Diagnosed, cells: np.ndarray) -> float:
    total = float(diagnosed.weight.sum())
    return float(diagnosed.weight[cells].sum()) / total if total > 0 else 0.0


def _which(trace: ScoreTrace, columns: object) -> str:
    at = [int(column) for column in columns]  # type: ignore[attr-defined]
    names = ", ".join(named(trace.devices[column], trace.kind) for column in at[:_MOST_NAMED])
    return names + (f" and {len(at) - _MOST_NAMED} more" if len(at) > _MOST_NAMED else "")


def _by_key(trace: ScoreTrace, values: dict[int, float]) -> dict[str, float]:
    return {trace.devices[at].key: float(value) for at, value in values.items()}
