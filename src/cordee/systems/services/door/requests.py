"""Requests through the door, counted by service, day and user from the proxy's log."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cordee.runs.folder import write_atomically
from cordee.systems.services.node.texts import read_state

_ROTATE_BYTES = 16 << 20
_COUNTS = ("requests", "errors", "sent_bytes", "received_bytes", "seconds")


class RequestCount:
    """Reads the log as it grows, adds up, and has it begun anew when it is long.

    Args:
        folder: of the door; sums are in `requests.json` there, with how far the log was read.
        reopen: has the proxy open its log anew.
    """

    def __init__(self, folder: Path, reopen: Callable[[], None]) -> None:
        self._log, self._sums, self._reopen = folder / "access.log", folder / "requests.json", reopen

    def look(self) -> None:
        """Add up what has been logged since."""
        known = read_requests(self._sums)
        old = self._log.with_name("access.log.1")
        changed = False
        for path, place in ((old, "old"), (self._log, "read")):
            if not path.exists():
                continue
            position, lines = _lines(path, known.get(place, 0))
            changed |= position != known.get(place, 0)
            known[place] = position
            for line in lines:
                _add(known["days"], line)
        if self._log.exists() and self._log.stat().st_size > _ROTATE_BYTES:
            self._log.rename(old)
            known["old"], known["read"], changed = known.get("read", 0), 0, True
            self._reopen()
        if changed:
            write_atomically(self._sums, json.dumps(known), durable=False)


def _lines(path: Path, position: int) -> tuple[int, list[dict[str, Any]]]:
    with path.open("rb") as file:
        file.seek(position)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    found = []
    for line in whole.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return position + len(whole), found


def _add(days: dict[str, Any], line: Mapping[str, Any]) -> None:
    day = time.strftime("%Y-%m-%d", time.gmtime(line["at"]))
    sums = days.setdefault(line["service"], {}).setdefault(day, {}).setdefault(line["user"], dict.fromkeys(_COUNTS, 0))
    sums["requests"] += 1
    sums["errors"] += line["status"] >= 500
    sums["sent_bytes"] += line["sent"]
    sums["received_bytes"] += line["received"]
    sums["seconds"] = round(sums["seconds"] + line["seconds"], 3)


def read_requests(path: Path) -> dict[str, Any]:
    """Return `days`: service, day, user, counts."""
    known = read_state(path)
    return known if "days" in known else {"days": {}}


def requests_of(service: str, folder: Path) -> dict[str, float]:
    """Return the counts of a service over all days and users."""
    sums: dict[str, float] = defaultdict(float)
    for users in read_requests(folder / "requests.json")["days"].get(service, {}).values():
        for counts in users.values():
            for key in _COUNTS:
                sums[key] += counts[key]
    return dict(sums)
