"""What a place that purges will remove, and when: from how long ago files were last used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cordee.core.units import utc_text

DAY_S = 86400.0
WARNING_DAYS = 7
_LAST_S = 253_402_300_799.0


@dataclass(frozen=True)
class Purge:
    """`after_s` without a write or read a file is removed; `soon_files` within `within_days` days, the first at `first_s`."""

    after_s: float
    within_days: int
    soon_files: int
    soon_bytes: int
    first_s: float

    def document(self) -> dict[str, Any]:
        values = asdict(self)
        del values["first_s"]
        return {**values, "first": time_text(self.first_s)}


def time_text(seconds: float) -> str:
    """Return a time of a file, which may be any number, as UTC from 1970 to 9999."""
    return utc_text(min(max(seconds, 0.0), _LAST_S))


def purge_of(
    ages: Mapping[int, tuple[int, int]],
    oldest_s: float | None,
    began_s: float,
    after_s: float | None,
    within_days: int = WARNING_DAYS,
) -> Purge | None:
    """Return what will be purged within so many days; None: nothing is purged there, or there are no files.

    Args:
        ages: files and bytes by whole days since their last use, counted from `began_s`.
        oldest_s: when the file that was used longest ago was last used, seconds of the epoch.
        after_s: the place's purge; None: it has none.
    """
    if after_s is None or oldest_s is None:
        return None
    # A file of age d days was last used between d and d + 1 days ago.
    soon = [counts for day, counts in ages.items() if (day + 1 + within_days) * DAY_S > after_s]
    return Purge(
        after_s=after_s,
        within_days=within_days,
        soon_files=sum(files for files, _ in soon),
        soon_bytes=sum(size for _, size in soon),
        first_s=oldest_s + after_s,
    )
