"""What the application logged, added over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordee.systems.score.trace.model import LoggedTotals

if TYPE_CHECKING:
    from cordee.telemetry.store.reader import Run


def read_logged(run: Run) -> tuple[dict[str, LoggedTotals], dict[str, int]]:
    """Return the sums over ranks by name, and how many ranks logged each name.

    A value stands for a step (without steps: for the n-th call of each rank), at the time at which the last rank logged it;
    of steps that a restart repeated the newest attempt counts.
    """
    logged, ranks = {}, {}
    for name in run.events():
        series = run.series(name)
        logged[name] = LoggedTotals(series.times, series.mean * series.ranks)
        ranks[name] = int(series.ranks.max(initial=0))
    return logged, ranks
