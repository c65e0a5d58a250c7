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

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from cordee.core.errors import RunFolderError, RunNotFound, UsageError
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.logframes import LogReader
from cordee.runs.state import RunState, replay
from cordee.telemetry.node.recording import all_ended, is_recording, read_recorders
from cordee.telemetry.store.model import Grid, LoggedEvent, Series
from cordee.telemetry.store.run_telemetry import RunTelemetry
from cordee.telemetry.store.sealed import read_commit
from cordee.telemetry.store.unsealed.tail import LiveEvents

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import xarray

    from cordee.telemetry.store.gridread import GridSource
    from cordee.telemetry.store.logged_values import UserMetrics
    from cordee.telemetry.store.missing_data import MissingSamples


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
    from cordee.core.documents.config_paths import profile_runs
    from cordee.runs.index import find_run

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
        self._telemetry = RunTelemetry(folder.telemetry, packed=packed)
        self._live = LiveEvents(folder.telemetry)
        self._of_logged: UserMetrics | None = None

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
                self._plan = read_json(self.folder.plan, self.folder.root)
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
        from cordee.telemetry.store.seal import seal

        if is_recording(self.folder):
            recorders, _ = read_recorders(self.folder)
            if not all_ended(self.folder, recorders):
                return read_commit(self.folder.telemetry).sealed_until
            return seal(self.folder.root, final=True)
        return seal(self.folder.root, final=self.state.ended)

    def groups(self) -> list[str]:
        """Return the names of the groups that have samples, such as `node` and `rank`."""
        return self._looked().groups()

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
        self.source(group)
        return self._telemetry.clock_jumps(group)

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
        from cordee.telemetry.store.gridread import read_grid

        return read_grid(self.source(group), metrics, start, stop, every, statistic)

    def source(self, group: str) -> GridSource:
        """Return what is sealed of a group and its tail as one, as it is now: what `grid` and views read.

        Raises:
            UsageError: there is no such group.
        """
        return self._looked().source(group)

    def facts(self, group: str) -> dict[str, dict[str, Any]]:
        """Return what is known of a group's devices, by node: `{devices: {device: {...}}, missing: {metric: reason}, remarks}`.

        Ranks are named as text. See `cordee.telemetry.node.blocklog.encode_facts`. While nothing new is told it is the same object, which
        is not to be changed.
        """
        return self._looked().facts(group)

    def events(self, name: str | Collection[str] | None = None) -> dict[str, np.ndarray]:
        """Return what ranks logged with `cordee.log`, by metric name (only `name`, or these names, when given).

        Each is a structured array with attempt, rank, offset, step (-1: none), time, value, ordered by attempt, rank
        and offset; nothing is in it twice.
        """
        return self._logged().events(self._looked().commit, name)

    def series(self, name: str) -> Series:
        """Return a user metric over the ranks in the order of steps; without steps, of each rank's calls in order.

        Raises:
            UsageError: nothing was logged under this name.
        """
        from cordee.telemetry.store.series import joined, newest_attempts, thinned, without_steps

        telemetry, logged = self._looked(), self._logged()
        about = [node["devices"].get(name, {}) for node in telemetry.facts("logged").values()]
        counted = any(one.get("counted") for one in about)
        table = logged.steps(telemetry.commit, telemetry.key, name, counted)
        if table.shape[1]:
            return _series(name, table)
        rows = logged.events(telemetry.commit, name).get(name)
        if rows is None:
            raise UsageError(
                "no rank logged this metric",
                given=name,
                allowed=logged.names(telemetry.commit) or "nothing was logged yet",
            )
        return _series(name, newest_attempts(joined([thinned(without_steps(rows))])))

    def logged(self) -> list[str]:
        """Return the names of the metrics that ranks logged, also Cordée's own, which begin with `cordee/`."""
        return self._logged().names(self._looked().commit)

    def last_events(self) -> list[LoggedEvent]:
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
        from cordee.telemetry.store.frames import events_frame, samples_frame

        names = [names] if isinstance(names, str) else names
        if what == "events":
            return events_frame(self.id, self.events(), self.dropped_events, names, **selection)
        return samples_frame(self.id, self.grid(what, names, **selection))

    @property
    def dropped_events(self) -> int:
        """User events that ranks had to drop because nobody took them in time."""
        return self._looked().dropped_events

    def missing(self) -> list[MissingSamples]:
        """Return what is not there of the telemetry and why: damage, files not copied, wrong clocks, what was left out.

        Damage within a sealed file is known once that part of it was read.
        """
        return self._looked().missing()

    def _looked(self) -> RunTelemetry:
        """Return the telemetry as it is now."""
        self._telemetry.look()
        return self._telemetry

    def _logged(self) -> UserMetrics:
        from cordee.telemetry.store.logged_values import UserMetrics

        if self._of_logged is None:
            self._of_logged = UserMetrics(self.folder.telemetry, self._telemetry.tail)
        return self._of_logged

    def _places(self, rank: int) -> list[str]:
        """Return the nodes that a rank has run on, from the journal."""
        nodes: dict[str, None] = {}
        for event in read_journal(self.folder.journal):
            if event["event"] == "attempt_started":
                for placed in event.get("nodes", []):
                    if rank in placed["ranks"]:
                        nodes[placed["node"]] = None
        return list(nodes)


def _series(name: str, table: np.ndarray) -> Series:
    """Return a table of steps (see `cordee.telemetry.store.series`) as a series."""
    import numpy as np

    _, _, steps, count, total, low, high, times = table
    return Series(name, steps.astype(np.int64), times, total / count, low, high, count.astype(np.int64))
