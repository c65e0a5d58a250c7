"""When checkpoints were written and how large they are: as ranks told it, else as write rates show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cordee.client.reserved import CHECKPOINT_BLOCKING, CHECKPOINT_BYTES, CHECKPOINT_SECONDS, CHECKPOINT_SNAPSHOT
from cordee.core.errors import UsageError
from cordee.core.units import parse_utc
from cordee.systems.checkpoints.pace.rates import mean_of
from cordee.telemetry.store.views import heat

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

_WRITTEN = ("rank", "io_write_bytes_per_second")
_LONGEST_S, _LATE_S = 300.0, 5.0
_COARSEST_S = 15.0
_LEAST_BYTES_PER_S = 1e6
_MOST_LOOKED = 20


@dataclass(frozen=True)
class Save:
    """One checkpoint.

    Attributes:
        step: None where the journal does not know it.
        begin: UTC epoch seconds, None when it is not known; `end` is when it was complete, or was seen.
        bytes: over all ranks; None: not known.
        ranks: how many told of it, 0 where none did.
        blocking: whether the training waited for all of it; None: not known.
        snapshot_s: how long it waited for the copy that was then written beside it; None: there was none.
        source: `told` by cordee.checkpointer, `written`: from write rates before it was seen, or only `seen`.
    """

    step: int | None
    name: str
    end: float
    begin: float | None = None
    bytes: float | None = None
    ranks: int = 0
    blocking: bool | None = None
    snapshot_s: float | None = None
    source: str = "seen"
    attempt: int = 0

    @property
    def seconds(self) -> float | None:
        """How long it took, None when that is not known."""
        return None if self.begin is None else self.end - self.begin


def saves(run: Run, journal: list[dict[str, Any]]) -> list[Save]:
    """Return all checkpoints of a run in the order of time.

    Args:
        journal: the run's.
    """
    logged = run.logged()
    told = _told(
        {
            name: run.events(name)[name]
            for name in (CHECKPOINT_SECONDS, CHECKPOINT_BYTES, CHECKPOINT_BLOCKING, CHECKPOINT_SNAPSHOT)
            if name in logged
        }
    )
    known = {save.step for save in told}
    seen = [
        Save(event.get("step"), str(event.get("name", "")), parse_utc(event["time"]))
        for event in journal
        if event["event"] == "checkpoint_seen"
    ]
    names: dict[int | None, str] = {save.step: save.name for save in seen}
    told = [replace(save, name=names.get(save.step, save.name)) for save in told]
    silent = [save for save in seen if save.step is None or save.step not in known]
    return sorted([*told, *_written(run, silent)], key=lambda save: save.end)


def _told(events: Mapping[str, np.ndarray]) -> list[Save]:
    """Return the saves that ranks told of. Their ends are the middle of the ranks' clocks: a save ends for all at once."""
    seconds, sizes, blocking, copies = (
        _by_save(events.get(name))
        for name in (CHECKPOINT_SECONDS, CHECKPOINT_BYTES, CHECKPOINT_BLOCKING, CHECKPOINT_SNAPSHOT)
    )
    found = []
    for (attempt, step), of_ranks in seconds.items():
        end = float(np.median(of_ranks["time"]))
        size, waited = sizes.get((attempt, step)), blocking.get((attempt, step))
        copied = copies.get((attempt, step))
        found.append(
            Save(
                step,
                f"step {step}",
                end,
                end - float(of_ranks["value"].max()),
                float(size["value"].sum()) if size is not None else None,
                len(np.unique(of_ranks["rank"])),
                bool(waited["value"].any()) if waited is not None else None,
                float(copied["value"].max()) if copied is not None else None,
                "told",
                attempt,
            )
        )
    return found


def _by_save(rows: np.ndarray | None) -> dict[tuple[int, int], np.ndarray]:
    """Return the rows of each (attempt, step), without numbers that make no sense."""
    if rows is None:
        return {}
    rows = rows[np.isfinite(rows["value"] + rows["time"]) & (rows["value"] >= 0) & (rows["step"] >= 0)]
    rows = rows[np.lexsort((rows["step"], rows["attempt"]))]
    begins = np.flatnonzero((np.diff(rows["attempt"]) != 0) | (np.diff(rows["step"]) != 0)) + 1
    parts = np.split(rows, begins) if len(rows) else []
    return {(int(part["attempt"][0]), int(part["step"][0])): part for part in parts}


def _written(run: Run, silent: list[Save]) -> list[Save]:
    """Return the saves with the burst of writes that ended when each was seen, where there is one; of the newest ones."""
    looked = [_with_burst(run, save) for save in silent[-_MOST_LOOKED:]]
    return silent[: len(silent) - len(looked)] + looked


def _with_burst(run: Run, save: Save) -> Save:
    """Return the save with begin, end and bytes of the burst that ended last before it was seen."""
    try:
        seen = heat(run, *_WRITTEN, save.end - _LONGEST_S, save.end + _LATE_S, columns=int(_LONGEST_S + _LATE_S))
    except UsageError:
        return save
    mean, devices = mean_of(seen.values)
    rates, cadence_s = np.nan_to_num(mean) * devices, seen.cadence
    threshold = max(0.1 * rates.max(initial=0.0), 5 * float(np.median(rates)), _LEAST_BYTES_PER_S)
    above = np.flatnonzero(rates > threshold)
    if cadence_s > _COARSEST_S or not len(above) or save.end - seen.times[above[-1]] > max(30.0, 4 * cadence_s):
        return save
    breaks = np.flatnonzero(np.diff(above) > 2)
    burst = above[breaks[-1] + 1 :] if len(breaks) else above
    # A sample tells of the time before it.
    begin = float(seen.times[burst[0]]) - cadence_s
    end = max(min(save.end, float(seen.times[burst[-1]]) + cadence_s), begin + cadence_s)
    return replace(save, begin=begin, end=end, bytes=float(rates[burst].sum() * cadence_s), source="written")
