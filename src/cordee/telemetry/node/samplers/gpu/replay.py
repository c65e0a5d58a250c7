"""A recording's GPUs played again, as a source: for tests, demos and `cordee record --source replay:DIR`."""

from __future__ import annotations

import re
from array import array
from pathlib import Path
from typing import Any, NamedTuple, Optional, Sequence, Union

from cordee.core.errors import CordeeError
from cordee.telemetry.node.blocklog import (
    FACTS,
    GRIDS,
    SCHEMA,
    decode_grid,
    decode_json,
    iter_records,
    list_parts,
    merge_facts,
    read_blocks,
)
from cordee.telemetry.node.samplers._base import NAN
from cordee.telemetry.node.samplers.gpu._base import ORDER, GpuMetricSource, Roots, SourceUnavailable, chosen

_GROUP = "gpu"
_UNKNOWN = "it is not in the recording that is replayed"
_GAP = "the recording that is replayed has no sample here"


class _Row(NamedTuple):
    """One sample of the recording: values device by device, as their schema orders them."""

    moment: float
    schema: dict[str, Any]
    values: Sequence[float]


class ReplaySource(GpuMetricSource):
    """Plays the samples of one node, one at each call, gaps too; from the beginning again when they end.

    Args:
        folder: a recording or a run.
        node: the node that replays: of its own samples where the recording has them, else of the n-th of its nodes,
            n being the number at the end of its name.
    """

    name = "replay"

    def __init__(
        self,
        folder: Union[str, Path],
        node: str = "",
        wanted: Optional[Sequence[str]] = None,
        interval_s: float = 1.0,
        own: Optional[Roots] = None,
    ) -> None:
        super().__init__(wanted, interval_s, own)
        self._folder = Path(folder)
        self._node = node
        self._devices: list[str] = []
        self._facts: dict[str, Any] = {"devices": {}, "missing": {}, "remarks": []}
        self._ticks: list[Optional[_Row]] = []
        self._at = 0

    def probe(self) -> Optional[str]:
        """Read the recording; return why there is nothing to play, or None."""
        try:
            rows, facts, node = _of_node(*_read(self._folder), self._node, self._folder)
            self._devices, absent = chosen(self.wanted, _union(row.schema["devices"] for row in rows))
        except SourceUnavailable as error:
            return str(error)
        except OSError as error:
            return f"cannot read {self._folder}: {error.strerror}"
        if not self._devices:
            return f"{self._folder} has no samples of {', '.join(absent)}"
        self._facts = facts
        self._ticks = _ticks(rows)
        self.never = dict(facts["missing"])
        self.give(_union([metric["name"] for metric in row.schema["metrics"]] for row in rows), _UNKNOWN)
        self.remarks = [
            f"GPU samples are no measurement of this job: a replay of node {node} in {self._folder.name}"
            f" ({len(self._ticks)} samples, again from the beginning when they end)",
            *facts["remarks"],
        ]
        return None if self.given else f"{self._folder} has samples of GPUs, but none of the standard metrics"

    def devices(self) -> list[Union[str, int]]:
        """Return the UUIDs of the recording."""
        return list(self._devices)

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return the recording's facts; `replayed` tells which it was."""
        known = self._facts["devices"]
        return {device: {**known.get(device, {}), "replayed": str(self._folder)} for device in self._devices}

    def sample(self) -> list[float]:
        """Return the next sample of the recording."""
        row = self._ticks[self._at]
        self._at = (self._at + 1) % len(self._ticks)
        self.missing = dict(self.never)
        if row is None:
            self.missing.update(dict.fromkeys(self.given, _GAP))
            return [NAN] * (len(self._devices) * len(self.given))
        columns = {metric["name"]: index for index, metric in enumerate(row.schema["metrics"])}
        places = {device: index * len(columns) for index, device in enumerate(row.schema["devices"])}
        values: list[float] = []
        for device in self._devices:
            for metric in self.given:
                there = device in places and metric in columns
                value = row.values[places[device] + columns[metric]] if there else NAN
                if value != value:
                    self.missing.setdefault(metric, self._facts["missing"].get(metric, _GAP))
                values.append(value)
        return values

    def close(self) -> None:
        """Forget the samples."""
        self._ticks = []


def _read(folder: Path) -> tuple[list[_Row], dict[str, dict[str, Any]]]:
    """Return all GPU samples and what is known of GPUs by `node/group`."""
    if not folder.is_dir():
        raise SourceUnavailable(f"there is no recording at {folder}")
    parts = list_parts(folder / "telemetry")
    firsts = {epoch: part for epoch, part, _ in reversed(parts)}
    if not firsts or any(firsts.values()):  # the first of an epoch were sealed and dropped
        return _read_sealed(folder)
    rows: list[_Row] = []
    known: dict[str, dict[str, Any]] = {}
    schemas: dict[int, dict[str, Any]] = {}
    for _, _, path in parts:
        for _, _, payload in read_blocks(path):
            for kind, body in iter_records(payload):
                if kind == SCHEMA:
                    schema = decode_json(body)
                    schemas[schema["id"]] = schema
                elif kind == FACTS:
                    news = decode_json(body)
                    if news["group"] == _GROUP:
                        merge_facts(known, news)
                elif kind in GRIDS:
                    identity, moment, values = decode_grid(body, kind)
                    if schemas.get(identity, {}).get("group") == _GROUP:
                        rows.append(_Row(moment, schemas[identity], values))
    return rows, known


def _read_sealed(folder: Path) -> tuple[list[_Row], dict[str, dict[str, Any]]]:
    """Return the same of a recording whose samples were sealed, which takes the reader of the document side."""
    import cordee

    try:
        run = cordee.open_run(folder)
        group = next((name for name in run.groups() if name.partition("-")[0] == _GROUP), None)
        grid = None if group is None else run.grid(group)
    except ImportError as error:
        raise SourceUnavailable(f"{folder} has no samples of GPUs that can be read without {error.name}") from None
    except (CordeeError, ValueError, LookupError, OSError) as error:
        raise SourceUnavailable(f"{folder} cannot be read: {error}") from None
    if grid is None:
        raise SourceUnavailable(f"{folder} has no samples of GPUs")
    known = {f"{node}/{_GROUP}": facts for node, facts in run.facts(_GROUP).items()}
    metrics = [{"name": name} for name in grid.metrics]
    rows: list[_Row] = []
    for node in known or {f"/{_GROUP}": {}}:
        name = node.rpartition("/")[0]
        devices = [uuid for uuid in grid.devices if not known or uuid in known[node]["devices"]]
        columns = [grid.devices.index(uuid) for uuid in devices]
        schema = {"node": name, "cadence": grid.cadence, "devices": devices, "metrics": metrics}
        for slot, moment in enumerate(grid.times):
            of_slot = array("d", grid.values[:, slot, columns].T.ravel().tolist())
            if any(value == value for value in of_slot):
                rows.append(_Row(float(moment), schema, of_slot))
    return rows, known


def _of_node(
    rows: list[_Row], known: dict[str, dict[str, Any]], node: str, folder: Path
) -> tuple[list[_Row], dict[str, Any], str]:
    """Return the samples, the facts and the name of the node that is played."""
    nodes = sorted({row.schema["node"] for row in rows})
    if not nodes:
        raise SourceUnavailable(f"{folder} has no samples of GPUs")
    if node not in nodes:
        number = re.search(r"(\d+)$", node)
        node = nodes[int(number[1]) % len(nodes) if number else 0]
    facts = known.get(f"{node}/{_GROUP}", {"devices": {}, "missing": {}, "remarks": []})
    return [row for row in rows if row.schema["node"] == node], facts, node


def _ticks(rows: list[_Row]) -> list[Optional[_Row]]:
    """Return the samples in the order of time, None where one is missing; a gap of over an hour is left out."""
    found: list[Optional[_Row]] = []
    before: Optional[_Row] = None
    for row in sorted(rows, key=lambda row: row.moment):
        if before is not None:
            skipped = round((row.moment - before.moment) / row.schema["cadence"]) - 1
            found += [None] * (skipped if skipped * row.schema["cadence"] <= 3600 else 0)
        found.append(row)
        before = row
    return found


def _union(lists: Any) -> list[str]:
    """Return what is in any of the lists, metrics of the catalogue in its order first."""
    found = dict.fromkeys(name for names in lists for name in names)
    return [name for name in ORDER if name in found] + [name for name in found if name not in ORDER]
