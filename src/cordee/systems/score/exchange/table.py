"""Samples of a run or a recording as rows of a table, a piece at a time, so that 1,000 GPUs x 1 h fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CordeeError, UsageError
from cordee.telemetry.node.catalogue import METRICS
from cordee.telemetry.store.reader import Run

if TYPE_CHECKING:
    import numpy as np

_VALUES_AT_ONCE = 4_000_000
_SEAL_BYTES = 100_000_000


@dataclass(frozen=True)
class TablePiece:
    """Some rows: `times` float64 [row] UTC epoch seconds, `device` int [row] index into the table's devices, `values`
    float32 [row, metric], NaN = missing. A row without any value is left out."""

    times: np.ndarray
    device: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class ExchangeTable:
    """One group of samples, to be taken piece by piece.

    Attributes:
        cadence_s: seconds between samples, or the length of a bin.
        devices: names, ranks as text; `nodes` has the node of each, empty where it is not known.
        units, sources: by metric.
        remarks: what the reader of the samples should know.
    """

    run: Run
    group: str
    metrics: list[str]
    devices: list[str]
    nodes: list[str]
    start: float
    stop: float
    cadence_s: float
    factor: int
    units: dict[str, str]
    sources: dict[str, str]
    remarks: list[str] = field(default_factory=list)

    def pieces(self) -> Iterator[TablePiece]:
        """Yield the rows, in the order of time."""
        step_s = self.cadence_s / self.factor
        slots = max(1, _VALUES_AT_ONCE // max(1, len(self.metrics) * len(self.devices)) // self.factor) * self.factor
        first = round(self.start / step_s) // self.factor * self.factor
        last = round(self.stop / step_s) + 1
        for at in range(first, last, slots):
            grid = self.run.grid(self.group, self.metrics, (at - 0.5) * step_s, (at + slots - 0.5) * step_s)
            if len(grid.times):
                yield self._rows(grid.times, grid.values, step_s)

    def _rows(self, times: np.ndarray, values: np.ndarray, step_s: float) -> TablePiece:
        import numpy as np

        if self.factor > 1:
            times, values = _binned(times, values, step_s, self.factor)
        measured = np.isfinite(values).any(axis=0)
        at, device = np.nonzero(measured)
        return TablePiece(times[at], device, values[:, at, device].T)


def open_table(run: Run, group: str | None, metrics: Sequence[str] | None, every_s: float | None) -> ExchangeTable:
    """Return a group's table.

    Args:
        group: `gpu`, `rank`, `node` or a group's full name; None: the first of these that was sampled.
        metrics: only these, in this order; None: all.
        every_s: means over so many seconds; a multiple of the cadence.

    Raises:
        UsageError: there are no samples, or no such group, metric or bin.
    """
    _seal_large(run)
    groups = run.groups()
    name = _chosen_group(groups, group)
    shape = run.grid(name, metrics, 0.0, 0.0)
    known = run.grid(name, shape.metrics[:1])
    factor = 1
    if every_s is not None:
        factor = round(every_s / shape.cadence)
        if factor < 1 or abs(factor * shape.cadence - every_s) > 1e-6 * every_s:
            raise UsageError(
                "these bins do not fit the samples",
                given=f"{every_s:g} s",
                allowed=f"a multiple of {shape.cadence:g} s, the interval of the samples",
            )
    kind = name.partition("-")[0]
    facts = run.facts(kind)
    node_of = {device: node for node, of_node in facts.items() for device in of_node["devices"]}
    return ExchangeTable(
        run=run,
        group=name,
        metrics=shape.metrics,
        devices=[str(device) for device in known.devices],
        nodes=[str(device) if kind == "node" else node_of.get(str(device), "") for device in known.devices],
        start=float(known.times[0]),
        stop=float(known.times[-1]),
        cadence_s=shape.cadence * factor,
        factor=factor,
        units={metric: shape.units.get(metric) or _unit(metric) for metric in shape.metrics},
        sources=shape.sources,
        remarks=[remark for of_node in facts.values() for remark in of_node["remarks"]],
    )


def _seal_large(run: Run) -> None:
    """Seal what would be read from its beginning for every piece; where it cannot be sealed it is read as it is."""
    if sum(path.stat().st_size for path in run.folder.telemetry.glob("blocks-*.log")) > _SEAL_BYTES:
        try:
            run.seal()
        except CordeeError:
            return


def _chosen_group(groups: list[str], given: str | None) -> str:
    if not groups:
        raise UsageError(
            "there is not one sample in this folder",
            allowed="a recording or a run with samples",
            next="did the recorded program end before the first sample?",
        )
    if given in groups:
        return str(given)
    for kind in (given,) if given else ("gpu", "rank", "node"):
        named = [name for name in groups if name.partition("-")[0] == kind]
        if len(named) == 1:
            return named[0]
        if named:
            raise UsageError("there are several groups of this kind", given=kind, allowed=named, next="name one")
    if given:
        raise UsageError("there are no samples of this group", given=given, allowed=groups)
    return groups[0]


def _unit(metric: str) -> str:
    return METRICS[metric].unit if metric in METRICS else ""


def _binned(times: np.ndarray, values: np.ndarray, step_s: float, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the bins' beginnings and their means [metric, bin, device] of what was measured in them."""
    import numpy as np

    slots = np.floor(times / step_s + 0.5).astype(np.int64) // factor
    bins, begins = np.unique(slots, return_index=True)
    count = np.add.reduceat(np.isfinite(values).astype(np.float64), begins, axis=1)
    total = np.add.reduceat(np.nan_to_num(values.astype(np.float64)), begins, axis=1)
    means = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return bins * factor * step_s, means.astype(np.float32)


def about(table: ExchangeTable) -> dict[str, Any]:
    """Return what a file should carry of its table beside the rows."""
    return {
        "run": table.run.id,
        "group": table.group,
        "cadence_s": table.cadence_s,
        "units": table.units,
        "sources": table.sources,
        "remarks": table.remarks,
    }
