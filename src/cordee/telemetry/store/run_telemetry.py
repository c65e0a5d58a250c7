"""What is sealed of a run's telemetry and what is not, brought up to date as one: no part of it is in both or in none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.errors import RunFolderError, UsageError
from cordee.telemetry.node.blocklog import merge_facts
from cordee.telemetry.store.sealed import Commit, commit_key, read_commit, read_facts
from cordee.telemetry.store.unsealed.tail import UnsealedTail, merged_packed

if TYPE_CHECKING:
    from cordee.telemetry.store.gridread import GridSource
    from cordee.telemetry.store.grids import PackedSamples
    from cordee.telemetry.store.missing_data import MissingSamples

_MOST_TRIED = 10


class RunTelemetry:
    """The telemetry of one run; what it answers is as of the last `look`.

    Args:
        folder: the run's `telemetry/`.
        packed: keep what is not sealed in single precision.

    Attributes:
        commit: what is sealed; `key` changes with it.
        tail: what is not.
    """

    def __init__(self, folder: Path, *, packed: bool) -> None:
        self._folder = folder
        self.tail = UnsealedTail(folder, packed=packed)
        self.commit = Commit()
        self.key: Any = None
        self._facts: tuple[Any, dict[str, dict[str, dict[str, Any]]]] | None = None
        self._sources: dict[str, tuple[Any, GridSource]] = {}

    def look(self) -> None:
        """Take what is new.

        Raises:
            RunFolderError: it cannot be read.
        """
        for _ in range(_MOST_TRIED):
            key = commit_key(self._folder)
            if key != self.key:
                self.commit = read_commit(self._folder)
                self.key = key
            try:
                self.tail.refresh(self.commit.parts)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise RunFolderError(
                    f"the telemetry cannot be read: {error.strerror}", given=str(error.filename or self._folder)
                ) from error
            if commit_key(self._folder) == key:
                return
        raise RunFolderError("the telemetry changes faster than it can be read", given=str(self._folder))

    def groups(self) -> list[str]:
        """Return the names of the groups that have samples."""
        from cordee.telemetry.store.grids import group_name

        packed = merged_packed(self.tail.parts)
        unsealed = {group_name(schema) for identity, schema in self.tail.schemas.items() if identity in packed}
        unsealed |= {name for name, window in self.tail.windows.items() if not window.empty}
        return sorted(unsealed | set(self.commit.groups))

    def source(self, group: str) -> GridSource:
        """Return what is sealed of a group and its tail as one.

        Raises:
            UsageError: there is no such group.
        """
        from cordee.telemetry.store.gridread import GridSource

        window = self.tail.windows.get(group)
        if window is not None and window.empty:
            window = None
        sealed, packed = self.commit.groups.get(group), self._packed(group)
        if sealed is None and window is None and not packed:
            raise UsageError("there are no samples of this group", given=group, allowed=self.groups() or "no group yet")
        key: Any = (self.key, id(window))
        if window is not None:  # what the first samples say of the time may change with more of them
            key += (len(window.devices), len(window.metrics), window.length if sealed is None else 0)
        if packed or group not in self._sources or self._sources[group][0] != key:
            self._sources[group] = (key, GridSource(self._folder, group, sealed, window, packed))
        return self._sources[group][1]

    def clock_jumps(self, group: str) -> dict[str, float]:
        """Return by how many seconds the clock of a node went back while it measured, where it did; of what is not sealed."""
        import numpy as np

        if group in self.tail.windows:
            return dict(self.tail.windows[group].jumps)
        found: dict[str, float] = {}
        for of_schema in self._packed(group):
            times = of_schema.times
            if not (np.diff(times) < -of_schema.schema["cadence"]).any():
                continue
            seen = dict.fromkeys(zip(times.tolist(), of_schema.values[:, 0, 0].tolist(), strict=True))
            times = np.array([moment for moment, _ in seen])  # what was sent twice is there twice
            back = float((np.maximum.accumulate(times) - times).max(initial=0.0))
            if back > of_schema.schema["cadence"]:
                node = str(of_schema.schema["node"])
                found[node] = max(back + of_schema.schema["cadence"], found.get(node, 0.0))
        return found

    def facts(self, group: str) -> dict[str, dict[str, Any]]:
        """Return what is known of a group's devices, by node; the same object while nothing new is told."""
        key = (self.key, tuple((part.path, len(part.facts)) for part in self.tail.parts))
        if self._facts is None or self._facts[0] != key:
            known = read_facts(self._folder)
            for part in self.tail.parts:
                for news in part.facts:
                    merge_facts(known, news)
            groups: dict[str, dict[str, dict[str, Any]]] = {}
            for facts in known.values():
                groups.setdefault(facts["group"], {})[facts["node"]] = facts
            self._facts = (key, groups)
        return self._facts[1].setdefault(group, {})

    @property
    def dropped_events(self) -> int:
        """User events that ranks had to drop."""
        return self.commit.dropped_events + sum(part.dropped_events for part in self.tail.parts)

    def missing(self) -> list[MissingSamples]:
        """Return what is not there and why; damage within a sealed file is known once that part of it was read."""
        from cordee.telemetry.store.missing_data import missing_events, missing_in_log, missing_samples, missing_shards

        commit, parts, windows = self.commit, self.tail.parts, self.tail.windows
        jumps: dict[str, float] = {}
        for window in windows.values():
            for node, back_s in window.jumps.items():
                jumps[node] = max(back_s, jumps.get(node, 0.0))
        outside = {name: axes.outside for name, axes in commit.groups.items()}
        for name, (_, source) in self._sources.items():
            outside[name] = outside.get(name, 0) + source.outside()
        damaged = {shard: why for _, source in self._sources.values() for shard, why in source.damaged().items()}
        capped = self.tail.names.capped_values if self.tail.names is not None else 0
        return [
            *missing_shards(self._folder, commit, damaged),
            *missing_in_log(
                commit.skipped_bytes + sum(part.skipped_bytes for part in parts),
                commit.malformed_records + sum(part.malformed_records for part in parts),
            ),
            *missing_samples(outside, jumps),
            *missing_events(self.dropped_events, commit.capped_values + capped),
        ]

    def _packed(self, group: str) -> list[PackedSamples]:
        from cordee.telemetry.store.grids import PackedSamples, group_name

        schemas = {key: schema for key, schema in self.tail.schemas.items() if group_name(schema) == group}
        packed = merged_packed(self.tail.parts)
        found = [PackedSamples(schema, packed[key]) for key, schema in schemas.items() if key in packed]
        return [samples for samples in found if len(samples.times)]
