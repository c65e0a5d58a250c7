"""Reading a run, also while it goes on: state, samples, user events and logs; what is sealed and what is not as one.

```python
import cordee

run = cordee.open_run("runs/char-gpt-20261121T012244Z-kqzv")
print(run.state.state, run.groups())
grid = run.grid("rank", ["memory_rss_bytes"])
grid.values  # float32 (metric, time, device)
run.series("loss").mean
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.errors import RunFolderError, RunNotFound, UsageError
from cordee.runs.blocklog import merge_facts
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.logframes import LogReader
from cordee.runs.recording import all_ended, is_recording, read_recorders
from cordee.runs.sealed import Commit, commit_key, read_commit, read_events, read_facts
from cordee.runs.state import RunState, replay
from cordee.runs.tail import Event, LiveEvents, Tail, merged_packed

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import xarray

    from cordee.runs.gridread import Source
    from cordee.runs.grids import Samples


@dataclass
class Grid:
    """Samples of one group: `values` float32 [metric, time, device], NaN = missing.

    Attributes:
        times: float64 [time], UTC epoch seconds, one every `cadence` seconds (the beginning of a bin for rollups).
        devices: node names, or rank numbers.
        metrics: names; `units` and `sources` by name.
    """

    group: str
    cadence: float
    times: np.ndarray
    devices: list[Any]
    metrics: list[str]
    values: np.ndarray
    units: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


@dataclass
class Series:
    """A user metric over the ranks, in the order of steps: arrays of one length.

    Attributes:
        steps: int64; where a restart repeated a step its newest attempt counts.
        times: float64, when the last rank logged it.
        mean, low, high: float64 over the ranks.
        ranks: int64, how many ranks logged it.
    """

    name: str
    steps: np.ndarray
    times: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ranks: np.ndarray


def open_run(run: str | os.PathLike[str], *, packed: bool = False) -> Run:
    """Open a run or a recording by its folder, or a run by its id or what else `cordee runs` takes.

    Runs are looked for in `CORDEE_RUNS`; without it in `runs/` and in the folders that cluster profiles name.

    Args:
        packed: keep what is not sealed in single precision, in a third of the memory, for large recordings.

    Raises:
        RunNotFound: no run answers to it.
    """
    folder = RunFolder(os.fspath(run))
    if folder.exists() or is_recording(folder):
        return Run(folder, packed=packed)
    from cordee.runs.index import find_run
    from cordee.runs.places import profile_runs

    chosen = os.environ.get("CORDEE_RUNS")
    try:
        found = find_run(os.fspath(run), *([chosen] if chosen else ["runs", *profile_runs()]))
    except RunNotFound as error:
        if not folder.root.is_dir():
            raise
        raise RunNotFound(
            "this folder holds neither a run nor a recording",
            given=str(folder.root),
            allowed="what `cordee run` left below runs/, or `cordee record -o DIR`, or `cordee score import`",
        ) from error
    return Run(found, packed=packed)


class Run:
    """One run, as it is now; every question reads what is new since the last one.

    Attributes:
        id: the run's id.
        folder: its paths.
    """

    def __init__(self, folder: RunFolder, *, packed: bool = False) -> None:
        self.folder = folder
        self.id = folder.root.resolve().name
        self._plan: dict[str, Any] | None = None
        self._tail = Tail(folder.telemetry, packed=packed)
        self._live = LiveEvents(folder.telemetry)
        self._commit = Commit()
        self._commit_key: Any = None
        self._sources: dict[str, tuple[Any, Source]] = {}

    def __repr__(self) -> str:
        return f"<cordee run {self.id}>"

    @property
    def plan(self) -> dict[str, Any]:
        """The frozen plan.

        Raises:
            RunFolderError: it is missing or damaged.
        """
        if self._plan is None:
            try:
                self._plan = json.loads(self.folder.plan.read_bytes())
            except (OSError, ValueError) as error:
                raise RunFolderError(f"cannot read the plan: {error}", given=str(self.folder.plan)) from error
        assert self._plan is not None
        return self._plan

    @property
    def state(self) -> RunState:
        """The replay of the journal as it is now."""
        return replay(read_journal(self.folder.journal), self.id)

    @property
    def logs(self) -> LogReader:
        """What the ranks printed."""
        return LogReader(self.folder.logs, self._places)

    def seal(self) -> float | None:
        """Seal what nobody writes to any more, so that later questions are quick; returns the time sealed until.

        The samplers of a recording write side by side: it is sealed as a whole, once all of them have ended.
        """
        from cordee.runs.seal import seal

        if is_recording(self.folder):
            recorders, _ = read_recorders(self.folder)
            if not all_ended(self.folder, recorders):
                return read_commit(self.folder.telemetry).sealed_until
            return seal(self.folder.root, final=True)
        return seal(self.folder.root, final=self.state.ended)

    def groups(self) -> list[str]:
        """Return the names of the groups that have samples, such as `node` and `rank`."""
        from cordee.runs.grids import group_name

        self._look()
        packed = merged_packed(self._tail.parts)
        unsealed = {group_name(schema) for identity, schema in self._tail.schemas.items() if identity in packed}
        unsealed |= {name for name, window in self._tail.windows.items() if not window.empty}
        return sorted(unsealed | set(self._commit.groups))

    def metrics(self, group: str) -> dict[str, dict[str, Any]]:
        """Return what is measured of a group, by the metric's name: `{name, unit, source}`.

        Raises:
            UsageError: there is no such group.
        """
        return dict(self.source(group).metrics)

    def clock_jumps(self, group: str) -> dict[str, float]:
        """Return by how many seconds the clock of a node went back while it measured, where it did; of what is not sealed.

        Raises:
            UsageError: there is no such group.
        """
        import numpy as np

        self.source(group)
        if group in self._tail.windows:
            return dict(self._tail.windows[group].jumps)
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

    def grid(
        self,
        group: str,
        metrics: Sequence[str] | None = None,
        start: float | None = None,
        stop: float | None = None,
        *,
        every: int | None = None,
        statistic: str = "mean",
    ) -> Grid:
        """Return the samples of a group, of all metrics and all of the time unless said otherwise.

        Args:
            metrics: only these, in this order.
            start, stop: only from `start` and before `stop`, UTC epoch seconds.
            every: bins of this many seconds instead of samples: 5 or 60.
            statistic: of each bin: mean, min, max or count.

        Raises:
            UsageError: there is no such group, metric, bin or statistic, or the answer would take over 8 GB.
        """
        from cordee.runs.gridread import read_grid

        return read_grid(self.source(group), metrics, start, stop, every, statistic)

    def source(self, group: str) -> Source:
        """Return what is sealed of a group and its tail as one, as it is now: what `grid` and views read.

        Raises:
            UsageError: there is no such group.
        """
        from cordee.runs.gridread import Source

        self._look()
        window = self._tail.windows.get(group)
        if window is not None and window.empty:
            window = None
        sealed, packed = self._commit.groups.get(group), self._packed(group)
        if sealed is None and window is None and not packed:
            raise UsageError("there are no samples of this group", given=group, allowed=self.groups() or "no group yet")
        key: Any = (self._commit_key, id(window))
        if window is not None:  # what the first samples say of the time may change with more of them
            key += (len(window.devices), len(window.metrics), window.length if sealed is None else 0)
        if packed or group not in self._sources or self._sources[group][0] != key:
            self._sources[group] = (key, Source(self.folder.telemetry, group, sealed, window, packed))
        return self._sources[group][1]

    def facts(self, group: str) -> dict[str, dict[str, Any]]:
        """Return what is known of a group's devices, by node: `{devices: {device: {...}}, missing: {metric: reason}, remarks}`.

        Ranks are named as text. See `cordee.runs.blocklog.encode_facts`.
        """
        self._look()
        known = read_facts(self.folder.telemetry)
        for part in self._tail.parts:
            for news in part.facts:
                merge_facts(known, news)
        return {facts["node"]: facts for facts in known.values() if facts["group"] == group}

    def events(self, name: str | None = None) -> dict[str, np.ndarray]:
        """Return what ranks logged with `cordee.log`, by metric name (only `name`, when given).

        Each is a structured array with attempt, rank, offset, step (-1: none), time, value, ordered by attempt, rank
        and offset; nothing is in it twice.
        """
        import numpy as np

        self._look()
        kind = [
            ("attempt", "<i4"),
            ("rank", "<i4"),
            ("offset", "<i8"),
            ("step", "<i8"),
            ("time", "<f8"),
            ("value", "<f8"),
        ]
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for event in self._tail.events():
            step = -1 if event.step is None else event.step
            for metric, value in event.values.items():
                if name in (None, metric):
                    row = (event.attempt, event.rank, event.offset, step, event.time, value)
                    rows.setdefault(metric, []).append(row)
        found = {metric: [np.array(of_metric, dtype=kind)] for metric, of_metric in rows.items()}
        for metric, table in self._sealed_events(name).items():
            array = np.zeros(table.shape[1], dtype=kind)
            for column, values in zip(("attempt", "rank", "offset", "step", "time", "value"), table, strict=True):
                array[column] = np.where(np.isnan(values), -1, values) if column == "step" else values
            found.setdefault(metric, []).append(array)
        result = {}
        for metric in sorted(found):
            array = np.concatenate(found[metric])
            keys = np.unique(array[["attempt", "rank", "offset"]], return_index=True)[1]
            result[metric] = array[keys]
        return result

    def series(self, name: str) -> Series:
        """Return a user metric over the ranks in the order of steps; without steps, of each rank's calls in order.

        Raises:
            UsageError: nothing was logged under this name.
        """
        import numpy as np

        rows = self.events(name).get(name)
        if rows is None:
            allowed = sorted(self.events())
            raise UsageError("no rank logged this metric", given=name, allowed=allowed or "nothing was logged yet")
        if (rows["step"] >= 0).any():
            rows = rows[rows["step"] >= 0]
        else:
            _, begins = np.unique(rows[["attempt", "rank"]], return_index=True)
            rows["step"] = np.arange(len(rows)) - np.repeat(begins, np.diff(np.r_[begins, len(rows)]))
        newest: dict[int, int] = {}
        for step, attempt in zip(rows["step"].tolist(), rows["attempt"].tolist(), strict=True):
            newest[step] = max(attempt, newest.get(step, 0))
        rows = rows[rows["attempt"] == np.array([newest[step] for step in rows["step"].tolist()])]
        rows = rows[np.argsort(rows["step"], kind="stable")]
        steps, begins = np.unique(rows["step"], return_index=True)
        values = rows["value"]
        count = np.diff(np.r_[begins, len(rows)])
        return Series(
            name,
            steps,
            np.maximum.reduceat(rows["time"], begins),
            np.add.reduceat(values, begins) / count,
            np.minimum.reduceat(values, begins),
            np.maximum.reduceat(values, begins),
            count,
        )

    def last_events(self) -> list[Event]:
        """Return the user events since the last call, cheaply; the first call returns those that are not sealed yet."""
        return self._live.read()

    def to_xarray(self, group: str, **selection: Any) -> xarray.Dataset:
        """Return a group as a Dataset: one variable (time, device) per metric, with unit and source; see `grid`."""
        import numpy as np
        import xarray

        grid = self.grid(group, **selection)
        times = (grid.times * 1e9).astype(np.int64).astype("datetime64[ns]")
        variables = {
            name: (("time", "device"), grid.values[at], {"units": grid.units[name], "source": grid.sources[name]})
            for at, name in enumerate(grid.metrics)
        }
        attributes = {"run": self.id, "group": group, "cadence_seconds": grid.cadence}
        return xarray.Dataset(variables, coords={"time": times, "device": grid.devices}, attrs=attributes)

    def to_pandas(self, what: str, names: Sequence[str] | None = None, **selection: Any) -> pandas.DataFrame:
        """Return a group's samples, or with `events` what ranks logged, as a tidy DataFrame.

        Samples: one row for each time (UTC) and device, which are the index; a column for each metric, NaN = missing.
        Events: one row for each value: time, name, rank, attempt, step (NA: none), value; in the order of time.
        `attrs` holds `run`; of samples also `group`, `cadence_seconds`, and `units` and `sources` by metric.

        Args:
            names: only these metrics.
            selection: of samples, what `grid` takes: start, stop, every, statistic; of events start and stop.

        Raises:
            UsageError: there is no such group or metric, the answer would take over 8 GB, or pandas is not installed.
        """
        from cordee.runs.frames import events_frame, samples_frame

        return (events_frame if what == "events" else samples_frame)(self, what, names, **selection)

    @property
    def dropped_events(self) -> int:
        """User events that ranks had to drop because nobody took them in time."""
        self._look()
        return self._commit.dropped_events + sum(part.dropped_events for part in self._tail.parts)

    def _look(self) -> None:
        """Bring commit and tail up to date, as one: no part is in both or in none."""
        for _ in range(10):
            key = commit_key(self.folder.telemetry)
            if key != self._commit_key:
                self._commit = read_commit(self.folder.telemetry)
                self._commit_key = key
            try:
                self._tail.refresh(self._commit.parts)
            except FileNotFoundError:
                continue
            if commit_key(self.folder.telemetry) == key:
                return
        raise RunFolderError("the telemetry changes faster than it can be read", given=str(self.folder.telemetry))

    def _packed(self, group: str) -> list[Samples]:
        from cordee.runs.grids import Samples, group_name

        schemas = {key: schema for key, schema in self._tail.schemas.items() if group_name(schema) == group}
        packed = merged_packed(self._tail.parts)
        found = [Samples(schema, packed[key]) for key, schema in schemas.items() if key in packed]
        return [samples for samples in found if len(samples.times)]

    def _sealed_events(self, name: str | None) -> dict[str, np.ndarray]:
        """Return (attempt, rank, offset, step, time, value) x rows by metric name."""
        import numpy as np

        commit, telemetry = self._commit, self.folder.telemetry
        if not commit.event_rows or (name is not None and name not in commit.event_names):
            return {}
        codes = read_events(telemetry, ("name",), 0, commit.event_rows)[0]
        table = read_events(telemetry, ("attempt", "rank", "offset", "step", "time", "value"), 0, commit.event_rows)
        wanted = [(code, of) for code, of in enumerate(commit.event_names) if name in (None, of)]
        found = {of: table[:, np.flatnonzero(codes == code)] for code, of in wanted}
        return {of: rows for of, rows in found.items() if rows.shape[1]}

    def _places(self, rank: int) -> list[str]:
        """Return the nodes that a rank has run on, from the journal."""
        nodes: dict[str, None] = {}
        for event in read_journal(self.folder.journal):
            if event["event"] == "attempt_started":
                for placed in event.get("nodes", []):
                    if rank in placed["ranks"]:
                        nodes[placed["node"]] = None
        return list(nodes)
