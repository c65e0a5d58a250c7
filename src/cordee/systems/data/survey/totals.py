"""Parts that several workers counted, put together; and kept in a file, so that a survey that was killed can go on."""

from __future__ import annotations

import hashlib
import heapq
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordee.core.documents.config_paths import cache_folder
from cordee.systems.data.survey.worker import MOST_NAMED, MOST_SAMPLES, MOST_SUFFIXES, OTHER, Part, empty_part

STATE_SCHEMA = "cordee.data-survey-state/1"
_SUMS = (
    "files",
    "bytes",
    "allocated",
    "folders",
    "links",
    "links_out",
    "others",
    "empty",
    "sparse",
    "vanished",
    "unreadable_count",
    "unreadable_files",
    "not_crossed_count",
)
_HISTOGRAMS = ("sizes", "ages")


class Totals:
    """What was counted so far. A file of several names counts once in bytes: its inode is kept till all were seen.

    Args:
        part: what an earlier survey had counted, as `document` gave it.
    """

    def __init__(self, part: Part | None = None) -> None:
        self.part = part or empty_part()
        for name in _HISTOGRAMS:
            self.part[name] = {int(key): value for key, value in self.part[name].items()}
        self._links = {(device, inode): rest for device, inode, rest in self.part["hard_links"]}
        self.part["hard_links"] = []
        self.part.setdefault("names_more", 0)

    def add(self, part: Part) -> None:
        """Add a part; its `todo` is the caller's."""
        mine = self.part
        for name in _SUMS:
            mine[name] += part[name]
        mine["depth"] = max(mine["depth"], part["depth"])
        for name in _HISTOGRAMS:
            for key, value in part[name].items():
                before = mine[name].get(int(key), (0, 0))
                mine[name][int(key)] = [before[0] + value[0], before[1] + value[1]]
        for suffix, (files, size, largest) in part["suffixes"].items():
            kept = suffix if suffix in mine["suffixes"] or len(mine["suffixes"]) < MOST_SUFFIXES else OTHER
            before = mine["suffixes"].get(kept, (0, 0, 0))
            mine["suffixes"][kept] = [before[0] + files, before[1] + size, max(before[2], largest)]
            samples = mine["samples"].setdefault(kept, [])
            samples += part["samples"].get(suffix, [])[: MOST_SAMPLES - len(samples)]
        for mark, found in part["marked"].items():
            marked = mine["marked"].setdefault(mark, {"count": 0, "paths": []})
            marked["count"] += found["count"]
            marked["paths"] = (marked["paths"] + found["paths"])[:MOST_NAMED]
        for name in ("unreadable", "unreadable_names", "not_crossed"):
            mine[name] = (mine[name] + part[name])[:MOST_NAMED]
        folders = [*mine["largest_folders"], *part["largest_folders"]]
        mine["largest_folders"] = heapq.nlargest(5, ((entries, path) for entries, path in folders))
        oldest = [part["oldest_s"], mine["oldest_s"]]
        mine["oldest_s"] = min((used_s for used_s in oldest if used_s is not None), default=None)
        for device, inode, names, size, allocated in part["hard_links"]:
            self._linked((device, inode), names, size, allocated)

    def document(self) -> Part:
        """Return everything as what JSON can hold."""
        return {**self.part, "hard_links": [[*key, rest] for key, rest in self._links.items()]}

    def _linked(self, inode: tuple[int, int], names: int, size: int, allocated: int) -> None:
        rest = self._links.pop(inode, None)
        if rest is None:
            self.part["bytes"] += size
            self.part["allocated"] += allocated
            rest = names
        else:
            self.part["names_more"] += 1
        if rest > 1:
            self._links[inode] = rest - 1


class SurveyState:
    """What is kept of the surveys of one path: `whole`, the last that came to its end, and `under_way`, one that did not.

    Args:
        path: what is surveyed.
        environ: says where the person's cache is.
    """

    def __init__(self, path: str, environ: Mapping[str, str] = os.environ) -> None:
        self._path = path
        folder = Path(cache_folder(environ)) / "surveys"
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
        self.whole, self.under_way = folder / f"{name}.json", folder / f"{name}.under-way.json"

    def read(self, file: Path) -> dict[str, Any] | None:
        """Return what one of the two keeps; None: nothing, or nothing that this Cordée can read."""
        try:
            kept = json.loads(file.read_text())
        except (OSError, ValueError):
            return None
        good = isinstance(kept, dict) and kept.get("schema") == STATE_SCHEMA and kept.get("path") == self._path
        return kept if good and bool(kept["todo"]) == (file == self.under_way) else None

    def write(self, values: Mapping[str, Any]) -> Path:
        """Keep `values`, replacing at once what was there: as whole where no `todo` is left. Return the file.

        Raises:
            OSError: the cache folder cannot be written.
        """
        file = self.under_way if values["todo"] else self.whole
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps({"schema": STATE_SCHEMA, "path": self._path, **values}))
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)
        if file == self.whole:
            self.under_way.unlink(missing_ok=True)
        return file
