"""Who sent how much to whom, and who waited for whom, per dimension of the training's parallelism: from all ranks' rings.

A ring is read as it lies in its dump, one after the other. Bytes are those of calls that have ended, under the algorithms of
`volumes`. A wait is how much earlier than the last rank another one made the same call: of ranks without a dump nothing is known, so
that it is the least that was waited. Sums are kept for cells: a rank each, or where there are many, a node or some ranks in a row.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cordee.core.draw.clean import few_ranges
from cordee.systems.explain.flight.rings import Rings
from cordee.systems.explain.flight.volumes import bytes_of, volume_of

MOST_RANKS, MOST_CELLS = 512, 256
_MOST_CALLS = 1 << 20
_APART_S = 0.5
_ALL, _OTHER, _TRANSFERS = "all ranks", "other groups", "transfers"
_PREFIX, _SUFFIXES = "mesh_", ("_model_parallel_group", "_parallel_group", "_parallel", "_group")
_NS = 1e9
# Experts have a numbering of their own over the ranks that the others number already.
_BESIDE, _EXPERTS = "ep", ("expert", "ep_", "_ep")


class TrafficCell(NamedTuple):
    """A row and a column of the matrices: `label` in words, and the ranks it stands for."""

    label: str
    ranks: tuple[int, ...]


class _Dimension:
    """The sums of one dimension."""

    def __init__(self, cells: int) -> None:
        self.bytes = np.zeros((cells, cells))
        self.waits = np.zeros((cells, cells))
        self.calls = 0
        self.groups: set[Any] = set()
        self.sizes: set[int] = set()


class Traffic:
    """Adds up the dumps of a training.

    Args:
        world: how many ranks there are.
        there: the ranks whose dumps will be added.
        places: the index of each rank in each dimension, where it is known.
        nodes: the node of each rank, where it is known.
        members: the ranks of groups whose dumps do not say them, by name and description.
        apart: ranks whose clocks are so far apart that their waits say nothing.
    """

    def __init__(
        self,
        world: int,
        there: Sequence[int],
        places: Mapping[int, Mapping[str, int]],
        nodes: Mapping[int, str],
        members: Mapping[tuple[str, str], tuple[int, ...]],
        apart: Sequence[int] = (),
    ) -> None:
        self.world, self.there = world, frozenset(there)
        self.by, self.cells = cells_of(world, nodes)
        self._cell = np.zeros(world, np.int32)
        for at, cell in enumerate(self.cells):
            self._cell[list(cell.ranks)] = at
        self.newest = max(1, _MOST_CALLS // max(1, len(self.there)))
        self.cut = False
        self.counted = 0
        self.uncounted: Counter[str] = Counter()
        self.first, self.last = float("inf"), 0.0
        self.clocks: dict[int, float] = {}
        self._places, self._told, self._apart = places, members, frozenset(apart)
        self._rings = Rings()
        self._dimensions: dict[str, _Dimension] = {}
        self._groups: dict[tuple[str, str, tuple[int, ...]], tuple[int, str]] = {}
        self._keys, self._times, self._ends, self._ranks = array("q"), array("q"), array("q"), array("i")

    def add(self, rank: int, dump: dict[str, Any]) -> None:
        """Take one rank's dump; what of it cannot be understood or counted is counted as such."""
        members = self._rings.members_of(dump)
        entries = dump["entries"]
        if len(entries) > self.newest:
            self.cut, entries = True, entries[-self.newest :]
        ended = _batches(entries)
        hops: dict[tuple[int, ...], tuple[str, list[float]]] = {}
        seen: dict[int, int] = {}
        for entry in entries:
            try:
                self._take(rank, entry, members, ended, hops, seen)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
                self.uncounted["entries that could not be understood"] += 1
        for ranks, (name, amounts) in hops.items():
            at = ranks.index(rank)
            after, before = ranks[(at + 1) % len(ranks)], ranks[at - 1]
            self._add_bytes(name, rank, after, sum(amounts))
            if before not in self.there:  # what it sends comes from here as well as it goes on
                self._add_bytes(name, before, rank, sum(amounts))

    def _take(
        self,
        rank: int,
        entry: dict[str, Any],
        members: Mapping[str, tuple[int, ...]],
        ended: set[tuple[Any, ...]],
        hops: dict[tuple[int, ...], tuple[str, list[float]]],
        seen: dict[int, int],
    ) -> None:
        name, desc = entry["process_group"]
        op, peer, _, _, gloo = self._rings.call_name(entry["profiling_name"])
        time, transfer = entry["time_created_ns"], peer >= 0
        sequence = entry["p2p_seq_id" if transfer or entry.get("is_p2p") is True else "collective_seq_id"]
        if type(time) is not int or type(sequence) is not int or not 0 <= sequence < 1 << 40:
            raise TypeError
        if op == "coalesced":
            return
        if not (_done(entry, gloo) or (name, transfer, sequence) in ended):
            self.uncounted["calls that have not ended"] += 1
            return
        group = members.get(name) or self._told.get((name, desc))
        if group is None or rank not in group:
            self.uncounted["calls in groups whose ranks are not known"] += 1
            return
        self.first, self.last = min(self.first, time / _NS), max(self.last, time / _NS)
        if transfer:
            self._transfer(rank, op, group[peer], entry, desc)
            return
        index, dimension = self._group(name, desc, group)
        self._wait(rank, index, sequence, entry, seen)
        inputs = bytes_of(entry["input_sizes"], entry["input_dtypes"])
        volume = None if inputs is None else volume_of(op, inputs, len(group))
        if volume is None:
            self.uncounted[f"{op}: its dump does not say who sends what"] += 1
            return
        self.counted += 1
        self._dimensions[dimension].calls += 1
        if volume.next:
            hops.setdefault(group, (dimension, []))[1].append(volume.next)
        for other, amount in zip(group, volume.each, strict=False):
            if other != rank:
                self._add_bytes(dimension, rank, other, amount)

    def _transfer(self, rank: int, op: str, peer: int, entry: dict[str, Any], desc: str) -> None:
        side = "input" if op == "send" else "output"
        amounts = bytes_of(entry[f"{side}_sizes"], entry[f"{side}_dtypes"])
        if amounts is None:
            self.uncounted[f"{op}: its type is not known"] += 1
            return
        name = self._name_of((rank, peer), desc)
        self._dimension(name, (min(rank, peer), max(rank, peer)), 2).calls += 1
        self.counted += 1
        if op == "send":
            self._add_bytes(name, rank, peer, sum(amounts))
        elif peer not in self.there:
            self._add_bytes(name, peer, rank, sum(amounts))

    def _wait(self, rank: int, group: int, sequence: int, entry: dict[str, Any], seen: dict[int, int]) -> None:
        if rank in self._apart or seen.get(group) == sequence:
            return
        seen[group] = sequence
        end = entry.get("time_discovered_completed_ns")
        self._keys.append((group << 40) | sequence)
        self._times.append(entry["time_created_ns"])
        self._ends.append(end if type(end) is int and end > 0 else 0)
        self._ranks.append(rank)

    def _group(self, name: str, desc: str, ranks: tuple[int, ...]) -> tuple[int, str]:
        key = (name, desc, ranks)
        if key not in self._groups:
            dimension = self._name_of(ranks, desc)
            self._groups[key] = len(self._groups), dimension
            self._dimension(dimension, (name, ranks), len(ranks))
        return self._groups[key]

    def _dimension(self, name: str, group: Any, size: int) -> _Dimension:
        found = self._dimensions.setdefault(name, _Dimension(len(self.cells)))
        found.groups.add(group)
        found.sizes.add(size)
        return found

    def _name_of(self, ranks: Sequence[int], desc: str) -> str:
        """Return the dimensions in which ranks of a group differ; where places are not known, what its description says."""
        if len(ranks) == self.world > 2:
            return _ALL
        places = [self._places.get(rank) for rank in ranks]
        if all(places):
            known = [place for place in places if place]
            names = [one for one in known[0] if any(place.get(one) != known[0][one] for place in known)]
            if _BESIDE in names and any(word in desc.lower() for word in _EXPERTS):
                return _BESIDE
            if names:
                return "+".join(sorted(set(names) - {_BESIDE})) or _BESIDE
        said = desc.lower().removeprefix(_PREFIX)
        for suffix in _SUFFIXES:
            said = said.removesuffix(suffix)
        if said == "default_pg":
            return _ALL if len(ranks) > 2 else _TRANSFERS
        return said if said and said != "undefined" else _OTHER

    def _add_bytes(self, dimension: str, sender: int, receiver: int, amount: float) -> None:
        self._dimensions[dimension].bytes[self._cell[sender], self._cell[receiver]] += amount

    def document(self) -> dict[str, Any]:
        """Return it as JSON: cells, and for each dimension its matrices as `[from, to, value]` and sums."""
        self._add_waits()
        dimensions = []
        for name, found in sorted(self._dimensions.items(), key=lambda one: -float(one[1].bytes.sum())):
            dimensions.append(
                {
                    "name": name,
                    "groups": len(found.groups),
                    "least_ranks": min(found.sizes),
                    "most_ranks": max(found.sizes),
                    "calls": found.calls,
                    "bytes": float(found.bytes.sum()),
                    "wait_s": float(found.waits.sum()),
                    "sent": _sparse(found.bytes, 1.0),
                    "waited": _sparse(found.waits, 1e-6),
                }
            )
        missing = sorted(set(range(self.world)) - self.there)
        return {
            "by": self.by,
            "cells": [
                {
                    "label": cell.label,
                    "ranks": few_ranges(list(cell.ranks)),
                    "missing": sum(rank not in self.there for rank in cell.ranks),
                    "count": len(cell.ranks),
                }
                for cell in self.cells
            ],
            "ranks": self.world,
            "missing": len(missing),
            "first": self.first if self.counted else None,
            "last": self.last if self.counted else None,
            "calls": self.counted,
            "newest": self.newest if self.cut else None,
            "uncounted": dict(self.uncounted.most_common()),
            "clocks": {str(rank): round(by, 3) for rank, by in sorted(self.clocks.items())},
            "without_waits": sorted(self._apart),
            "dimensions": dimensions,
        }

    def _add_waits(self) -> None:
        """Add up who waited for whom: all for the last."""
        if not self._keys:
            return
        keys, ranks = np.array(self._keys), np.array(self._ranks)
        times = np.array(self._times) - self._offsets(keys, ranks)[ranks]
        order = np.lexsort((times, keys))
        keys, ranks, times = keys[order], ranks[order], times[order]
        ends = np.flatnonzero(np.append(keys[1:] != keys[:-1], True))
        lengths = np.diff(ends, prepend=-1)
        last = np.repeat(ends, lengths)
        waited = (times[last] - times) / _NS
        names = dict(self._groups.values())
        groups = keys >> 40
        for name, found in self._dimensions.items():
            own = np.isin(groups, [index for index, one in names.items() if one == name]) & (waited > 0)
            np.add.at(found.waits, (self._cell[ranks[own]], self._cell[ranks[last[own]]]), waited[own])
        self._keys = array("q")

    def _offsets(self, keys: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """Return how much each rank's clock is ahead, ns: by when calls ended, which they do everywhere at once; 0 below half a second."""
        ends = np.array(self._ends)
        offsets = np.zeros(self.world, np.int64)
        known = ends > 0
        if not known.any():
            return offsets
        own_keys, own_ranks, own_ends = keys[known], ranks[known], ends[known]
        order = np.lexsort((own_ends, own_keys))
        own_keys, own_ranks, own_ends = own_keys[order], own_ranks[order], own_ends[order]
        first = np.flatnonzero(np.append(True, own_keys[1:] != own_keys[:-1]))
        lengths = np.diff(first, append=len(own_keys))
        several = np.repeat(lengths > 2, lengths)
        middle = np.repeat(own_ends[first + lengths // 2], lengths)
        apart, who = (own_ends - middle)[several], own_ranks[several]
        by_rank = np.argsort(who, kind="stable")
        for part in np.split(by_rank, np.flatnonzero(np.diff(who[by_rank])) + 1) if len(who) else []:
            by = int(np.median(apart[part]))
            if abs(by) > _APART_S * _NS:
                offsets[who[part[0]]] = by
                self.clocks[int(who[part[0]])] = by / _NS
        return offsets


def cells_of(world: int, nodes: Mapping[int, str]) -> tuple[str, list[TrafficCell]]:
    """Return by what the matrices are, and their cells: ranks up to 512, else nodes, else ranks in a row; 256 at most."""
    if world <= MOST_RANKS:
        return "rank", [TrafficCell(f"rank {rank}", (rank,)) for rank in range(world)]
    of_node: dict[str, list[int]] = {}
    for rank in range(world):
        of_node.setdefault(nodes.get(rank, ""), []).append(rank)
    if "" in of_node:
        each = -(-world // MOST_CELLS)
        rows = [tuple(range(at, min(at + each, world))) for at in range(0, world, each)]
        return "ranks", [TrafficCell(f"ranks {few_ranges(list(row))}", row) for row in rows]
    names = list(of_node)
    each = -(-len(names) // MOST_CELLS)
    found = []
    for at in range(0, len(names), each):
        some = names[at : at + each]
        label = some[0] if len(some) == 1 else f"{some[0]} to {some[-1]}"
        found.append(TrafficCell(label, tuple(rank for name in some for rank in of_node[name])))
    return "node" if each == 1 else "nodes", found


def _batches(entries: list[Any]) -> set[tuple[Any, ...]]:
    """Return the batches that have ended: only their last entry says so."""
    found = set()
    for entry in entries:
        if (
            isinstance(entry, dict)
            and str(entry.get("profiling_name", "")).endswith(":coalesced")
            and _done(entry, False)
        ):
            transfer = entry.get("is_p2p") is True
            group = entry.get("process_group")
            if isinstance(group, (list, tuple)) and group and isinstance(group[0], str):
                sequence = entry.get("p2p_seq_id" if transfer else "collective_seq_id")
                if isinstance(sequence, int):
                    found.add((group[0], transfer, sequence))
    return found


def _done(entry: Mapping[str, Any], gloo: bool) -> bool:
    return entry["state"] == "completed" or (gloo and entry["retired"] is True)


def _sparse(matrix: np.ndarray, least: float) -> list[list[float]]:
    """Return `[from, to, value]` of what is at least so large."""
    rows, columns = np.nonzero(matrix >= least)
    digits: Callable[[float], float] = (lambda value: round(value)) if least >= 1 else (lambda value: round(value, 6))
    return [
        [int(row), int(column), digits(float(matrix[row, column]))] for row, column in zip(rows, columns, strict=True)
    ]
