"""Everything that is known of a run's storage, in one answer."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cordee.core.stats import finite, finite_values
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay
from cordee.systems.checkpoints.pace.dents import Dent, dents
from cordee.systems.checkpoints.pace.pace import THROUGHPUTS, Stretches, pace, stretches, work_per_step
from cordee.systems.checkpoints.pace.rates import JobRate, job_rates, unmeasured
from cordee.systems.checkpoints.pace.saves import Save, saves
from cordee.systems.checkpoints.pace.words import save_text, summary_text
from cordee.telemetry.node.recording import is_recording

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run

SCHEMA = "cordee.storage/1"
Points = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class StorageView:
    """What a run's storage did.

    Attributes:
        start, stop: what is shown, UTC epoch seconds; NaN when nothing was measured.
        rates: of the whole job.
        saves: checkpoints in the order of time; `dents`: what each cost.
        pace: (times, steps per second), from when steps were logged.
        logged: the name of the throughput that ranks logged themselves, empty when they did not.
        work_per_step: what a step does in its unit, by which the pace becomes a throughput; None: not known, or steps differ.
        training_s: seconds between logged steps, over all attempts.
        missing: `{what, why, next}` of what is not known.
    """

    start: float
    stop: float
    rates: list[JobRate]
    saves: list[Save]
    dents: list[Dent]
    pace: Points
    logged: str
    work_per_step: float | None
    training_s: float
    missing: list[dict[str, str]] = field(default_factory=list)

    @property
    def lost_s(self) -> float:
        """Seconds of training lost to the checkpoints whose dent stands out."""
        return sum(dent.lost_s for dent in self.dents if dent.visible and dent.lost_s is not None)

    def throughput(self) -> tuple[str, np.ndarray, np.ndarray]:
        """Return (name, times, values): what ranks logged as their throughput over all of the time, else steps per second.

        A throughput that a script logs is of the steps alone and hides what goes on between them; this one shows it.
        """
        times, values = self.pace
        if self.work_per_step is None:
            return "steps per second", times, values
        return f"{self.logged}, from progress", times, values * self.work_per_step

    def _throughput(self) -> dict[str, Any] | None:
        if self.work_per_step is None:
            return None
        name, times, values = self.throughput()
        how = f"{self.work_per_step:.4g} a step (the median of {self.logged} x the time of a step) x steps per second"
        return {"name": name, "times": times.tolist(), "values": finite_values(values), "how": how}

    @property
    def text(self) -> str:
        """What checkpoints cost, in one sentence."""
        return summary_text(self.saves, self.dents, self.training_s)

    def document(self) -> dict[str, Any]:
        """Return the view as JSON can hold it: numbers that are none become null, arrays become lists."""
        times, values = self.pace
        share = self.lost_s / self.training_s if self.training_s > 0 else None
        return {
            "schema": SCHEMA,
            "start": finite(self.start),
            "stop": finite(self.stop),
            "rates": [_rate(rate) for rate in self.rates],
            "checkpoints": [_save(save, dent) for save, dent in zip(self.saves, self.dents, strict=True)],
            "pace": {"unit": "steps/s", "times": times.tolist(), "values": finite_values(values)},
            "throughput": self._throughput(),
            "summary": {
                "checkpoints": len(self.saves),
                "measured": sum(dent.lost_s is not None for dent in self.dents),
                "visible": sum(dent.visible for dent in self.dents),
                "lost_s": self.lost_s,
                "training_s": self.training_s,
                "share": share,
                "text": self.text,
            },
            "missing": self.missing,
        }


def storage_view(run: Run, start: float | None = None, stop: float | None = None, points: int = 600) -> StorageView:
    """Return rates of storage, checkpoint writes and what they cost, of a run or a recording, also while it goes on.

    Args:
        start, stop: UTC epoch seconds of the curves; without them all of the run. Checkpoints are always all.
        points: at most so many for each curve.

    Raises:
        RunFolderError: its journal cannot be read.
    """
    journal = [] if is_recording(run.folder) else read_journal(run.folder.journal)
    state = replay(journal, run.id)
    done = stretches(run, state)
    found = saves(run, journal)
    rates = job_rates(run, start, stop, points, _hosts(state))
    begin, end = _extent(done, rates, start, stop)
    curve = pace(done, begin, end, points) if end > begin else (np.empty(0), np.empty(0))
    return StorageView(
        begin,
        end,
        rates,
        found,
        dents(found, done),
        curve,
        done.name if done.name in THROUGHPUTS else "",
        work_per_step(done),
        float((done.end - done.begin).sum()),
        _missing(run, rates, found, done, started=bool(state.attempts)),
    )


def _hosts(state: RunState) -> int | None:
    """Return how many machines the nodes of a local run are, None where each node is a machine."""
    hosts = {node.host for node in state.nodes if node.host}
    return len(hosts) if 0 < len(hosts) < len(state.nodes) else None


def _extent(done: Stretches, rates: list[JobRate], start: float | None, stop: float | None) -> tuple[float, float]:
    firsts = [float(rate.times[0]) for rate in rates if len(rate.times)] + [float(at) for at in done.begin[:1]]
    lasts = [float(rate.times[-1]) for rate in rates if len(rate.times)]
    lasts += [float(done.end.max())] if len(done.end) else []
    begin = start if start is not None else min(firsts, default=math.nan)
    end = stop if stop is not None else max(lasts, default=math.nan)
    return begin, min(end, time.time() + 86400.0)


def _missing(
    run: Run, rates: list[JobRate], found: list[Save], done: Stretches, *, started: bool
) -> list[dict[str, str]]:
    missing = []
    absent = unmeasured(run)
    if absent is not None:
        why, nodes = absent
        more = "" if len(nodes) == 1 else f" (and on {len(nodes) - 1} more nodes)"
        missing.append(_lack("rates of shared file systems", f"{nodes[0]}: {why}{more}", "see docs/storage.md"))
    elif not rates:
        missing.append(_lack("rates of storage", "nothing was sampled yet", "wait for the first samples"))
    if not found:
        how = "save with cordee.checkpointer, or give [checkpoint] path and pattern"
        missing.append(_lack("checkpoints", "none was told of or seen", how))
    elif any(save.begin is None for save in found):
        why = "the script saves by itself, and no burst of writes ended when one was seen"
        missing.append(_lack("when checkpoints were written", why, "save with cordee.checkpointer"))
    if not len(done.end) and started:
        how = "cordee.log(step=..., tokens_per_s=...)"
        missing.append(_lack("throughput", "fewer than two steps were logged", how))
    return missing


def _lack(what: str, why: str, how: str) -> dict[str, str]:
    return {"what": what, "why": why, "next": how}


def _rate(rate: JobRate) -> dict[str, Any]:
    names = ("group", "name", "unit", "source", "statistic", "devices")
    about = {name: getattr(rate, name) for name in names}
    return {**about, "times": rate.times.tolist(), "values": finite_values(rate.values)}


def _save(save: Save, dent: Dent) -> dict[str, Any]:
    names = ("step", "name", "begin", "end", "seconds", "bytes", "ranks", "blocking", "snapshot_s", "source", "attempt")
    about: dict[str, Any] = {name: getattr(save, name) for name in names}
    cost = {"lost_s": dent.lost_s, "share": dent.share, "visible": dent.visible}
    return {**about, **cost, "reason": dent.reason, "text": save_text(save, dent)}
