"""What is not sealed of one group, as arrays that grow with the log: a reader takes in each sample once.

Samples lie in blocks of `BLOCK_SLOTS` slots, float32 (metric, slot, device). A block goes when all parts of the block log
that had samples in it are sealed, so that a run that is followed for a day takes the memory of some minutes. Blocks that are
many, as those of a long recording which nobody sealed, lie in a file without a name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cordee.telemetry.store.unsealed.rows import decode_rows

BLOCK_SLOTS = 60

_IN_MEMORY_BYTES = 512 << 20
_MOST_BYTES = 64 << 30


@dataclass
class _Block:
    """Slots from at * BLOCK_SLOTS: `values`, the slots [low, high) with samples, the parts they came from, schemas and times."""

    values: np.ndarray
    low: int
    high: int
    rows: int = 0
    parts: set[Path] = field(default_factory=set)
    seen: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


@dataclass
class _Placed:
    """A schema: where its devices and metrics lie, and the newest time it was seen with."""

    node: str
    shape: tuple[int, int]
    columns: np.ndarray
    lines: tuple[int, ...]
    newest: float = -np.inf


class Window:
    """The samples of one group that are not sealed.

    Args:
        cadence: seconds per slot.

    Attributes:
        devices: column by device; `metrics`: what is measured, by name; both in the order in which they came.
        jumps: by how many seconds a node's clock went back, where it did.
        refused: samples that a wrong clock scattered over more blocks than could be kept.
    """

    def __init__(self, cadence: float) -> None:
        self.cadence = cadence
        self.devices: dict[Any, int] = {}
        self.metrics: dict[str, dict[str, Any]] = {}
        self.jumps: dict[str, float] = {}
        self.refused = 0
        self._lines: dict[str, int] = {}
        self._placed: dict[int, _Placed] = {}
        self._blocks: dict[int, _Block] = {}
        self._bytes = 0

    def place(self, identity: int, schema: Mapping[str, Any]) -> None:
        """Learn where the samples of a schema belong."""
        if identity in self._placed:
            return
        for device in schema["devices"]:
            self.devices.setdefault(device, len(self.devices))
        for metric in schema["metrics"]:
            self.metrics.setdefault(metric["name"], metric)
            self._lines.setdefault(metric["name"], len(self._lines))
        columns = np.array([self.devices[device] for device in schema["devices"]], dtype=np.int64)
        lines = tuple(self._lines[metric["name"]] for metric in schema["metrics"])
        self._placed[identity] = _Placed(str(schema["node"]), (len(columns), len(lines)), columns, lines)

    def take(self, rows: Mapping[int, Sequence[bytes]], part: Path) -> np.ndarray:
        """Take in samples of schemas that were placed, and return their times, float64 [n].

        When two fall into one slot the later one wins, value by value; a missing value never hides a measured one.
        """
        families: dict[tuple[tuple[int, int], tuple[int, ...]], list[int]] = {}
        for identity in rows:
            placed = self._placed[identity]
            families.setdefault((placed.shape, placed.lines), []).append(identity)
        taken = [self._take_family(*key, identities, rows, part) for key, identities in families.items()]
        return np.concatenate(taken) if taken else np.zeros(0)

    def drop(self, parts: Iterable[Path]) -> None:
        """Forget the blocks whose samples all came from these parts: they are sealed."""
        gone = set(parts)
        for at in [at for at, block in self._blocks.items() if block.parts & gone]:
            self._blocks[at].parts -= gone
            if not self._blocks[at].parts:
                self._bytes -= self._blocks.pop(at).values.nbytes

    @property
    def empty(self) -> bool:
        """Whether nothing was taken in, or all of it was sealed."""
        return not self._blocks

    @property
    def length(self) -> int:
        """How many blocks there are."""
        return len(self._blocks)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return UTC seconds at which samples lie, to a block, and how many lie there."""
        starts = np.array(list(self._blocks), dtype=np.float64) * BLOCK_SLOTS * self.cadence
        return starts, np.array([block.rows for block in self._blocks.values()], dtype=np.int64)

    def extent(self, low: int, high: int) -> tuple[int, int] | None:
        """Return the slots [first, stop) of the samples between the slots `low` and `high`; None when there are none."""
        inside = [block for block in self._blocks.values() if block.low < high and block.high > low]
        if not inside:
            return None
        return max(low, min(block.low for block in inside)), min(high, max(block.high for block in inside))

    def outside(self, low: int, high: int) -> int:
        """Return how many samples lie before the slot `low` or from `high` on."""
        beyond = sum(block.rows for block in self._blocks.values() if block.high <= low or block.low >= high)
        return beyond + self.refused

    def stretches(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return, in order, the slots [low, high) between `first` and `stop` in which there may be samples."""
        found = sorted((block.low, block.high) for block in self._blocks.values())
        return [(max(first, low), min(stop, high)) for low, high in found if low < stop and high > first]

    def paint(self, target: np.ndarray, first: int, names: Sequence[str], columns: np.ndarray) -> None:
        """Write the samples of these metrics into `target` (metric, slot from `first`, device).

        Args:
            columns: by this window's column, the column of `target`.
        """
        pairs = [(line, self._lines[name]) for line, name in enumerate(names) if name in self._lines]
        straight = len(columns) == 0 or bool((np.diff(columns) == 1).all())
        for at in sorted(self._blocks):
            block = self._blocks[at]
            low, high = max(first, block.low), min(first + target.shape[1], block.high)
            if low >= high:
                continue
            begin = at * BLOCK_SLOTS
            for line, mine in pairs:
                if mine >= block.values.shape[0]:
                    continue
                news = block.values[mine, low - begin : high - begin, : len(columns)]
                slots = slice(low - first, high - first)
                known = columns[: news.shape[1]]
                if straight and len(known):
                    into = target[line, slots, known[0] : known[-1] + 1]
                    np.copyto(into, news, where=~np.isnan(news))
                elif len(known):
                    into = target[line, slots][:, known]
                    target[line, slots, known] = np.where(np.isnan(news), into, news).T

    def _take_family(
        self,
        shape: tuple[int, int],
        lines: tuple[int, ...],
        identities: list[int],
        rows: Mapping[int, Sequence[bytes]],
        part: Path,
    ) -> np.ndarray:
        """Take in the samples of schemas that measure the same of as many devices, all at once."""
        decoded = [decode_rows([row for identity in identities for row in rows[identity]], *shape)]
        counts = np.array([len(rows[identity]) for identity in identities])
        if len(decoded[0][0]) != counts.sum():  # some rows are no samples: which, is seen one schema after the other
            decoded = [decode_rows(rows[identity], *shape) for identity in identities]
            counts = np.array([len(times) for times, _ in decoded])
        times = np.concatenate([of[0] for of in decoded])
        values = np.concatenate([of[1] for of in decoded]) if len(decoded) > 1 else decoded[0][1]
        owner = np.repeat(np.arange(len(identities)), counts)
        known = np.isfinite(times) & (np.abs(times) < 1e12)
        if not known.all():
            times, values, owner = times[known], values[known], owner[known]
        if not len(times):
            return times
        self._note_jumps(identities, owner, times)
        slots = np.floor(times / self.cadence + 0.5).astype(np.int64)
        order = np.argsort(slots, kind="stable")  # one slot after the other, as they lie in memory
        times, slots, values, owner = times[order], slots[order], values[order], owner[order]
        schemas = np.array(identities)[owner]
        columns = np.stack([self._placed[identity].columns for identity in identities])
        numbers = slots // BLOCK_SLOTS
        for at in np.unique(numbers).tolist():
            block = self._block(at)
            if block is None:
                self.refused += int((numbers == at).sum())
                continue
            inside = slice(None) if (numbers == at).all() else np.flatnonzero(numbers == at)
            _scatter(block.values, slots[inside] - at * BLOCK_SLOTS, columns[owner[inside]], values[inside], lines)
            block.parts.add(part)
            block.seen.append((schemas[inside], times[inside]))
            block.rows += len(slots[inside])
            block.low = min(block.low, int(slots[inside].min()))
            block.high = max(block.high, int(slots[inside].max()) + 1)
        return times

    def _note_jumps(self, identities: list[int], owner: np.ndarray, times: np.ndarray) -> None:
        """Note which nodes' clocks went back; what was sent twice comes again in order and is no jump."""
        begins = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        newest = np.maximum.reduceat(times, begins)
        for begin, latest in zip(begins.tolist(), newest.tolist(), strict=True):
            identity = identities[owner[begin]]
            placed = self._placed[identity]
            if times[begin] < placed.newest - self.cadence:
                self._jumped(identity, float(times[begin]), placed.newest)
            placed.newest = max(placed.newest, latest)
        for at in np.flatnonzero((np.diff(times) < -self.cadence) & (owner[1:] == owner[:-1])).tolist():
            self._jumped(identities[owner[at]], float(times[at + 1]), float(times[at]))

    def _jumped(self, identity: int, moment: float, before: float) -> None:
        block = self._blocks.get(int(np.floor(moment / self.cadence + 0.5)) // BLOCK_SLOTS)
        for schemas, times in block.seen if block is not None else ():
            if ((schemas == identity) & (times == moment)).any():
                return
        node = self._placed[identity].node
        self.jumps[node] = max(self.jumps.get(node, 0.0), before - moment + self.cadence)

    def _block(self, at: int) -> _Block | None:
        """Return a block with room for all devices and metrics that are known; None when there are too many."""
        shape = (len(self._lines), BLOCK_SLOTS, len(self.devices))
        block = self._blocks.get(at)
        if block is None:
            if self._bytes > _MOST_BYTES:
                return None
            block = _Block(self._allocate(shape), (at + 1) * BLOCK_SLOTS, at * BLOCK_SLOTS)
            self._blocks[at] = block
        elif block.values.shape != shape:
            wider = self._allocate(shape)
            wider[: block.values.shape[0], :, : block.values.shape[2]] = block.values
            self._bytes -= block.values.nbytes
            block.values = wider
        return block

    def _allocate(self, shape: tuple[int, int, int]) -> np.ndarray:
        self._bytes += 4 * int(np.prod(shape))
        values: np.ndarray
        if self._bytes > _IN_MEMORY_BYTES:
            try:
                with tempfile.TemporaryFile(prefix="cordee-samples-") as file:
                    values = np.memmap(file, np.float32, "w+", shape=shape)
                    values[:] = np.nan
                    return values
            except OSError:
                pass  # no disk takes it: then it stays in memory
        return np.full(shape, np.nan, dtype=np.float32)


def _scatter(
    target: np.ndarray, slots: np.ndarray, columns: np.ndarray, values: np.ndarray, lines: tuple[int, ...]
) -> None:
    """Write values [n, device, metric] of slots [n] and columns [n, device] into `target` (metric, slot, column), in order."""
    flat = (slots[:, None] * target.shape[2] + columns).ravel()
    table = values.reshape(len(flat), len(lines))
    whole = target.reshape(target.shape[0], -1)
    missing = np.isnan(table)
    some = missing.any(axis=0) if missing.any() else np.zeros(len(lines), dtype=bool)
    with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite
        for at, line in enumerate(lines):
            if some[at]:
                measured = ~missing[:, at]
                whole[line, flat[measured]] = table[measured, at]
            else:
                whole[line, flat] = table[:, at]
