"""Signs of life of a run: what it last wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, Optional

from cordee.core.units import parse_utc
from cordee.machine.foreign_files import parse_json, regular_below
from cordee.runs.folder import RunFolder


def last_sign(folder: RunFolder, until: Optional[float] = None) -> Optional[float]:
    """Return when the run last wrote journal, output or samples, in UTC epoch seconds; None when nothing is there.

    Args:
        until: when the next allocation began. What is written later is no sign of the one before, but of the next one, or of
            a process that was left behind: of a file that grew after that, its events count that are older, and only a
            journal has such. Where all is later, as with clocks that do not agree, the answer is `until`.
    """
    signs = []
    for place in (folder.journal, folder.logs, folder.telemetry):
        try:
            with os.scandir(place) as entries:
                files = [entry for entry in entries if entry.is_file() and not entry.name.startswith("client")]
                for file in files:
                    changed = file.stat().st_mtime
                    signs.append(changed)
                    if until is not None and changed > until and place == folder.journal:
                        signs += _times(Path(file.path), folder.root)
        except OSError:
            continue
    if until is None or not signs:
        return max(signs, default=None)
    return max((sign for sign in signs if sign <= until), default=until)


def _times(journal: Path, root: Path) -> Iterator[float]:
    """Yield when the events of one journal were written; what cannot be read is passed over."""
    try:
        with open(journal, "rb", opener=regular_below(root)) as lines:
            for line in lines:
                try:
                    yield parse_utc(str(parse_json(line)["time"]))
                except (ValueError, TypeError, KeyError):
                    continue
    except OSError:
        return
