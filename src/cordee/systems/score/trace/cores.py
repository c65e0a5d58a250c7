"""The cores of a node as one device: the same identity where there is no GPU, from what ranks used of their cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cordee.systems.score.trace.model import ScoredDevice
from cordee.systems.score.trace.samples import SampleGroup
from cordee.telemetry.node.recording import Recorder

# Names of what is scored of cores; no source has them, they are made here.
GRAPHICS, SM, SOL = "cores_in_use_ratio", "cores_busy_ratio", "cores_instructions_ratio"


def core_devices(ranks: SampleGroup, node_of: dict[int, str]) -> list[ScoredDevice]:
    """Return one device for each node that has ranks."""
    from cordee.telemetry.store.grids import natural

    nodes = sorted(set(node_of.values()), key=natural)
    return [
        ScoredDevice(node, node, at, "cores", tuple(sorted(rank for rank, of in node_of.items() if of == node)))
        for at, node in enumerate(nodes)
    ]


def core_loader(
    ranks: SampleGroup,
    node_of: dict[int, str],
    devices: list[ScoredDevice],
    facts: dict[str, Any],
    recorders: list[Recorder],
) -> Callable[[str], np.ndarray | None]:
    """Return the loader of a trace of cores: float32 [time, node], None for what cores do not have.

    A rank that has not begun or has ended uses nothing of its cores; where a rank that runs was not sampled, the node's
    sample is missing.
    """
    places = {rank: at for at, rank in enumerate(ranks.devices)}
    columns = [[places[rank] for rank in device.ranks] for device in devices]
    given = given_cores(facts, recorders)

    def used() -> np.ndarray:
        return _over_nodes(ranks, columns)

    def cores() -> np.ndarray:
        shares = ranks.load("cpu_share_cores")
        return np.stack([_cores(ranks, shares, column, given) for column in columns])

    def load_metric(name: str) -> np.ndarray | None:
        if name == GRAPHICS:
            one = np.fmin(1.0, cores())  # ranks that share a core have less than one
            in_use: np.ndarray = np.minimum(1.0, used() / one[None, :]).astype(np.float32)
            return in_use
        if name == SM:
            number = cores()
            if not np.isfinite(number).any():
                return None
            busy: np.ndarray = np.minimum(1.0, used() / number[None, :]).astype(np.float32)
            return busy
        if name == SOL and ranks.measured("instructions_per_cycle"):
            return _weighted(ranks.load("instructions_per_cycle"), ranks.load("cpu_cores_ratio"), columns)
        return None

    return load_metric


def _over_nodes(ranks: SampleGroup, columns: list[list[int]]) -> np.ndarray:
    """Return the cores in use [time, node]: a rank counts 0 before its first sample and after its last."""
    values = ranks.load("cpu_cores_ratio")
    assert values is not None
    known = np.isfinite(values)
    begun = np.maximum.accumulate(known, axis=0)
    goes_on = np.maximum.accumulate(known[::-1], axis=0)[::-1]
    filled = np.where(known, values, np.where(begun & goes_on, np.nan, 0.0))
    of_nodes = [np.where(known[:, column].any(axis=1), filled[:, column].sum(axis=1), np.nan) for column in columns]
    return np.stack(of_nodes, axis=1)


def _cores(ranks: SampleGroup, shares: np.ndarray | None, column: list[int], given: dict[int, float]) -> float:
    """Return the cores of a node's ranks together, NaN when that is not known."""
    total = 0.0
    for at in column:
        of_rank = np.nan if shares is None else np.nanmax(shares[:, at], initial=-np.inf)
        total += of_rank if np.isfinite(of_rank) and of_rank > 0 else given.get(int(ranks.devices[at]), np.nan)
    return total


def given_cores(facts: dict[str, Any], recorders: list[Recorder]) -> dict[int, float]:
    """Return the cores of each rank by the CPUs that it may use, each CPU shared by those that may use it."""
    found: dict[int, float] = {}
    masks: list[dict[int, list[int]]] = [
        {rank.rank: rank.cpus for rank in recorder.ranks if rank.cpus} for recorder in recorders
    ]
    masks += [
        {int(rank): known["cpus"] for rank, known in about["devices"].items() if known.get("cpus")}
        for about in facts.values()
    ]
    for of_node in masks:
        users: dict[int, int] = {}
        for cpus in of_node.values():
            for cpu in cpus:
                users[cpu] = users.get(cpu, 0) + 1
        found.update({rank: sum(1 / users[cpu] for cpu in cpus) for rank, cpus in of_node.items()})
    return found


def _weighted(values: np.ndarray | None, weights: np.ndarray | None, columns: list[list[int]]) -> np.ndarray | None:
    """Return the instructions per cycle of each node, its ranks weighted by the CPU time that they used."""
    if values is None or weights is None:
        return None
    result = np.full((len(values), len(columns)), np.nan, dtype=np.float32)
    for at, column in enumerate(columns):
        known = np.isfinite(values[:, column]) & np.isfinite(weights[:, column])
        weight = np.where(known, weights[:, column], 0.0)
        total = (np.where(known, values[:, column], 0.0) * weight).sum(axis=1)
        summed = weight.sum(axis=1)
        result[:, at] = np.where(known.any(axis=1), np.where(summed > 0, total / np.maximum(summed, 1e-9), 0.0), np.nan)
    return result
