"""Looks through folders and counts what is in them; also a program of its own, of which several run at once.

As a program (`python -I -S worker.py`, which starts in 20 ms): the first line on standard input holds the options, each
further line a list of folders; each is answered by one line, a part. Lines are JSON; names that are no UTF-8 are surrogate
escapes. A part counts whole folders only: those that it did not come to are in its `todo`.
"""

from __future__ import annotations

import heapq
import json
import os
import resource
import signal
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Folder = tuple[str, int, str]  # path, depth below the top (0), what it is a part of ("", "venv", "zarr", ...)
Part = dict[str, Any]

DAY_S = 86400
MOST_NAMED = 20
MOST_SUFFIXES = 400
MOST_SAMPLES = 4
OTHER = "*"
# A file of this name makes its folder, and all below it, one thing.
MARKERS = {
    "pyvenv.cfg": "venv",
    "conda-meta": "venv",
    ".zgroup": "zarr",
    ".zarray": "zarr",
    "zarr.json": "zarr",
    "dataset.index": "packed",
}
_COMPRESSIONS = frozenset(["gz", "zst", "xz", "bz2", "lz4"])
_LISTED_AT_ONCE = 1024
_SLOW_S = 100e-6
_STAT_THREADS = 16
_SPARSE_BYTES = 65536


def empty_part() -> Part:
    """Return a part of nothing."""
    counts = ("files", "bytes", "allocated", "folders", "links", "links_out", "others", "empty", "sparse", "vanished")
    part: Part = dict.fromkeys(counts, 0)
    part.update(unreadable_count=0, unreadable_files=0, not_crossed_count=0, depth=0, oldest_s=None)
    part.update(sizes={}, ages={}, suffixes={}, samples={}, marked={})
    part.update(largest_folders=[], unreadable=[], unreadable_names=[], not_crossed=[], hard_links=[], todo=[])
    return part


class _Own:
    """What one folder's files end in: for each suffix files, bytes, the largest, and a few samples."""

    def __init__(self) -> None:
        self.suffixes: dict[str, list[Any]] = {}

    def add(self, prefix: str, regular: list[tuple[str, Any]]) -> None:
        """Add files: their names below `prefix` and what is known of them."""
        suffixes = self.suffixes
        for name, status in regular:
            suffix, size = suffix_of(name), status.st_size
            kept = suffixes.get(suffix)
            if kept is None:
                if len(suffixes) >= MOST_SUFFIXES:
                    suffix = OTHER
                kept = suffixes.setdefault(suffix, [0, 0, 0, []])
            kept[0] += 1
            kept[1] += size
            if size > kept[2]:
                kept[2] = size
            # One without blocks is a hole, or lies on tape: reading it would bring it back.
            if kept[0] <= MOST_SAMPLES and (status.st_blocks or size < _SPARSE_BYTES):
                kept[3].append((prefix + name, size))

    def add_to(self, part: Part, kind: str) -> None:
        """Add it to a part, all as one where the folder is a part of something."""
        for found, (files, size, largest, samples) in self.suffixes.items():
            suffix = f"<{kind}>" if kind else found
            if suffix not in part["suffixes"] and len(part["suffixes"]) >= MOST_SUFFIXES:
                suffix = OTHER
            kept = part["suffixes"].setdefault(suffix, [0, 0, 0])
            kept[:] = [kept[0] + files, kept[1] + size, max(kept[2], largest)]
            sampled = part["samples"].setdefault(suffix, [])
            sampled += samples[: MOST_SAMPLES - len(sampled)]


class Looker:
    """Looks through folders of one tree.

    Args:
        options: `top` (the path), `device` (its file system), `cross`, `mounts` (paths on which something is mounted),
            `now_s` (ages are counted from it).
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._top = options["top"].rstrip("/") + "/"
        self._device = options["device"]
        self._cross = options["cross"]
        self._mounts = frozenset(options["mounts"])
        self._now_s = options["now_s"]
        self._user, self._groups = os.geteuid(), frozenset([os.getegid(), *os.getgroups()])
        self._slow = False
        self._pool: ThreadPoolExecutor | None = None

    def look(self, folders: list[Folder], budget_s: float) -> Part:
        """Return the part of these folders and of what is below them, deepest first, until the time is spent."""
        part = empty_part()
        todo, end = list(folders), time.monotonic() + budget_s
        while todo:
            path, depth, kind = todo.pop()
            try:
                todo += self._folder(path, depth, kind, part)
            except FileNotFoundError:
                part["vanished"] += 1
            except OSError as error:
                part["unreadable_count"] += 1
                _name(part["unreadable"], f"{path}: {error.strerror}")
            if time.monotonic() > end:
                break
        part["todo"] = todo
        return part

    def look_at_file(self, path: str) -> Part:
        """Return the part of one file that is the top itself."""
        part = empty_part()
        folder, name = os.path.split(path)
        with os.scandir(folder) as listing:
            own = _Own()
            self._files(folder.rstrip("/") + "/", [entry for entry in listing if entry.name == name], part, own)
        own.add_to(part, "")
        return part

    def _folder(self, path: str, depth: int, kind: str, part: Part) -> list[Folder]:
        """Add one folder to the part and return the folders in it; what is in memory does not grow with the folder."""
        marks: set[str] = set()
        below: list[str] = []
        listed: list[Any] = []
        entries, own = 0, _Own()
        prefix = path.rstrip("/") + "/"
        with os.scandir(path) as listing:
            for entry in listing:
                entries += 1
                name = entry.name
                if name in MARKERS:
                    marks.add(MARKERS[name])
                if entry.is_symlink():
                    part["links"] += 1
                    part["links_out"] += self._leads_out(prefix, name)
                elif entry.is_dir(follow_symlinks=False):
                    below.append(name)
                else:
                    listed.append(entry)
                    if len(listed) == _LISTED_AT_ONCE:
                        self._files(prefix, listed, part, own)
                        listed.clear()
            self._files(prefix, listed, part, own)
        kind = kind or min(marks, default="")
        own.add_to(part, kind)
        for mark in marks:
            marked = part["marked"].setdefault(mark, {"count": 0, "paths": []})
            marked["count"] += 1
            _name(marked["paths"], path)
        part["folders"] += 1
        part["depth"] = max(part["depth"], depth)
        _keep_largest(part["largest_folders"], entries, path)
        return [(prefix + name, depth + 1, kind) for name in below if self._enters(prefix + name, part)]

    def _files(self, prefix: str, listed: list[Any], part: Part, own: _Own) -> None:
        """Add files of one folder to the part, and to `own` what depends on what the folder turns out to be."""
        regular = []
        for name, status in self._statuses(listed):
            if status is None:
                part["vanished"] += 1
            elif stat.S_ISREG(status.st_mode):
                regular.append((name, status))
            else:
                part["others"] += 1
        self._count(prefix, regular, part)
        own.add(prefix, regular)
        self._add_ages(regular, part)

    def _count(self, prefix: str, regular: list[tuple[str, Any]], part: Part) -> None:
        """Add numbers, sizes and blocks; a file of several names is left to whoever sees all of them."""
        sizes, user, groups = part["sizes"], self._user, self._groups
        size_sum = blocks_sum = 0
        for name, status in regular:
            size, blocks = status.st_size, status.st_blocks
            if status.st_nlink > 1:
                part["hard_links"].append((status.st_dev, status.st_ino, status.st_nlink, size, blocks * 512))
            else:
                size_sum += size
                blocks_sum += blocks
            bits = size.bit_length()
            counts = sizes.get(bits)
            if counts is None:
                counts = sizes[bits] = [0, 0]
            counts[0] += 1
            counts[1] += size
            if size == 0:
                part["empty"] += 1
            elif size >= _SPARSE_BYTES and blocks * 1024 < size:
                part["sparse"] += 1
            if user and not _readable(status, user, groups) and not os.access(prefix + name, os.R_OK):
                part["unreadable_files"] += 1
                _name(part["unreadable_names"], prefix + name)
        part["files"] += len(regular)
        part["bytes"] += size_sum
        part["allocated"] += blocks_sum * 512

    def _add_ages(self, regular: list[tuple[str, Any]], part: Part) -> None:
        """Add when files were last written or read, by days before now."""
        ages, now_s, oldest_s = part["ages"], self._now_s, part["oldest_s"]
        for _, status in regular:
            used_s = status.st_mtime
            if status.st_atime > used_s:
                used_s = status.st_atime
            day = int((now_s - used_s) // DAY_S)
            counts = ages.get(day)
            if counts is None:
                counts = ages[day] = [0, 0]
            counts[0] += 1
            counts[1] += status.st_size
            if oldest_s is None or used_s < oldest_s:
                oldest_s = used_s
        part["oldest_s"] = oldest_s

    def _statuses(self, listed: list[Any]) -> list[tuple[str, Any]]:
        """Return (name, status) of entries, None for one that is gone; on slow storage many are asked for at once."""
        if self._slow and len(listed) >= _STAT_THREADS:
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(_STAT_THREADS)
            slices = [listed[first::_STAT_THREADS] for first in range(_STAT_THREADS)]
            return [status for some in self._pool.map(_statuses, slices) for status in some]
        begin, waits = time.monotonic(), _waits()
        statuses = _statuses(listed)
        if len(listed) >= _STAT_THREADS:
            late = time.monotonic() - begin > _SLOW_S * len(listed)
            self._slow = late and 2 * (_waits() - waits) > len(listed)
        return statuses

    def _leads_out(self, prefix: str, name: str) -> bool:
        try:
            target = os.path.normpath(os.path.join(prefix, os.readlink(prefix + name)))
        except OSError:
            return False
        return not (target + "/").startswith(self._top)

    def _enters(self, path: str, part: Part) -> bool:
        """Return whether a folder is looked through: not where another file system begins, unless that is asked for."""
        try:
            status = os.lstat(path)
        except OSError:
            return True  # looking through it tells what is wrong
        if status.st_dev == self._device and path not in self._mounts:
            return True
        if self._cross and not _is_above(status, path):
            return True
        part["not_crossed_count"] += 1
        _name(part["not_crossed"], path)
        return False


def suffix_of(name: str) -> str:
    """Return what a name ends in, in small letters without the dot: "" for none, `#` for digits, `tar.gz` as one."""
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem or len(suffix) > 12:
        return ""
    suffix = suffix.lower()
    if suffix.isdigit():
        return "#"
    if suffix in _COMPRESSIONS:
        inner = stem.rpartition(".")[2].lower()
        if inner in ("tar", "csv", "jsonl", "json", "txt"):
            return f"{inner}.{suffix}"
    return suffix


def _waits() -> int:
    """Return how often this thread has waited for something else than a core."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _busy_s() -> float:
    """Return how long this process had a core or was waiting for one; what else passed, it waited for storage.

    Source: the kernel's Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
    """
    try:
        with open("/proc/self/schedstat") as file:
            running, queued, _ = file.read().split()
    except (OSError, ValueError):
        return time.monotonic()  # not told here: it never waits
    return (int(running) + int(queued)) / 1e9


def _statuses(listed: list[Any]) -> list[tuple[str, Any]]:
    found = []
    for entry in listed:
        try:
            found.append((entry.name, entry.stat(follow_symlinks=False)))
        except OSError:
            found.append((entry.name, None))
    return found


def _readable(status: Any, user: int, groups: frozenset[int]) -> bool:
    if status.st_uid == user:
        return bool(status.st_mode & stat.S_IRUSR)
    if status.st_gid in groups:
        return bool(status.st_mode & stat.S_IRGRP)
    return bool(status.st_mode & stat.S_IROTH)


def _is_above(status: Any, path: str) -> bool:
    """Return whether what is mounted at a path is one of the folders above it: a loop."""
    above = os.path.dirname(path)
    while True:
        try:
            if os.path.samestat(os.lstat(above), status):
                return True
        except OSError:
            return True
        if above == os.path.dirname(above):
            return False
        above = os.path.dirname(above)


def _keep_largest(kept: list[tuple[int, str]], entries: int, path: str) -> None:
    heapq.heappush(kept, (entries, path))
    if len(kept) > 5:
        heapq.heappop(kept)


def _name(named: list[str], text: str) -> None:
    if len(named) < MOST_NAMED:
        named.append(text)


def main() -> None:
    """Answer the lines of standard input until it ends, and with it whoever asks."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    looker = Looker(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        request = json.loads(line)
        begin_s, busy_s = time.monotonic(), _busy_s()
        part = looker.look([(path, depth, kind) for path, depth, kind in request["folders"]], request["budget_s"])
        part["seconds"] = time.monotonic() - begin_s
        part["waited_seconds"] = part["seconds"] - (_busy_s() - busy_s)
        sys.stdout.write(json.dumps(part) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
