"""Samples and user events as pandas DataFrames, for `Run.to_pandas`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cordee.core.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import pandas

    from cordee.telemetry.store.model import Grid


def samples_frame(run: str, grid: Grid) -> pandas.DataFrame:
    """Return samples of the run with this id: float32 columns by metric, a row for each (time, device), also where all is missing.

    Raises:
        UsageError: pandas is not installed.
    """
    pd = _pandas()
    index = pd.MultiIndex.from_product([_times(pd, grid.times), grid.devices], names=["time", "device"])
    columns = grid.values.reshape(len(grid.metrics), len(index)).T
    frame = pd.DataFrame(columns, index=index, columns=pd.Index(grid.metrics, name=None))
    frame.attrs = {
        "run": run,
        "group": grid.group,
        "cadence_seconds": grid.cadence,
        "units": {name: grid.units[name] for name in grid.metrics},
        "sources": {name: grid.sources[name] for name in grid.metrics},
    }
    return frame


def events_frame(
    run: str,
    found: Mapping[str, np.ndarray],
    dropped: int,
    names: Sequence[str] | None,
    start: float | None = None,
    stop: float | None = None,
) -> pandas.DataFrame:
    """Return what ranks of the run with this id logged from `start` and before `stop` (UTC epoch seconds), a row for each value.

    Raises:
        UsageError: nothing was logged under one of the names; or pandas is not installed.
    """
    import numpy as np

    pd = _pandas()
    wanted = list(found) if names is None else list(dict.fromkeys(names))
    strangers = [name for name in wanted if name not in found]
    if strangers:
        raise UsageError("no rank logged this", given=strangers, allowed=sorted(found) or "nothing was logged yet")
    rows = [found[name] for name in wanted]
    columns: dict[str, Any] = {key: np.concatenate([_empty(), *(of[key] for of in rows)]) for key in _COLUMNS}
    columns["name"] = pd.Categorical(np.repeat(wanted, [len(of) for of in rows]), categories=wanted)
    kept = np.ones(len(columns["time"]), dtype=bool)
    kept &= True if start is None else columns["time"] >= start
    kept &= True if stop is None else columns["time"] < stop
    order = np.flatnonzero(kept)[np.argsort(columns["time"][kept], kind="stable")]
    step = columns["step"][order]
    frame = pd.DataFrame(
        {
            "time": _times(pd, columns["time"][order]),
            "name": columns["name"][order],
            "rank": columns["rank"][order].astype(np.int32),
            "attempt": columns["attempt"][order].astype(np.int32),
            "step": pd.array(step.astype(np.int64), dtype="Int64"),
            "value": columns["value"][order],
        }
    )
    frame.loc[step < 0, "step"] = pd.NA
    frame.attrs = {"run": run, "dropped": dropped}
    return frame


_COLUMNS = ("time", "rank", "attempt", "step", "value")


def _empty() -> np.ndarray:
    import numpy as np

    return np.empty(0)


def _times(pd: Any, seconds: np.ndarray) -> Any:
    return pd.to_datetime((seconds * 1e6).round().astype("int64"), unit="us", utc=True)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise UsageError(
            "pandas is not installed here",
            given="Run.to_pandas",
            next="`pip install pandas`, or use Run.to_xarray, which needs nothing more",
        ) from None
    return pandas
