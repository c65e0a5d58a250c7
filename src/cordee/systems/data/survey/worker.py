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
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Folder = tuple[str, int, str]  # path, depth below the top (0), what it is a part of ("", "venv", "zarr", ...)
Part = dict[str, Any]
# Of each name: mode, inode, device, number of names, user, group, size, second of reading, of writing, blocks of 512 bytes.
Columns = list[Sequence[int]]
Known = tuple[list[str], Columns, list[OSError]]  # names, what is known of them, and why some is not known

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
_MARKER_NAMES = frozenset(MARKERS)
_COMPRESSIONS = frozenset(["gz", "zst", "xz", "bz2", "lz4"])
_LISTED_AT_ONCE = 1024
_STATX_BYTES = 256
_STATX_FLAGS = 0x100 | 0x800  # AT_SYMLINK_NOFOLLOW, AT_NO_AUTOMOUNT: as os.lstat
_STATX_MASK = 0x7FF  # STATX_BASIC_STATS
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


class Statx:
    """Asks for what is known of many names below an open folder, without an object for each, for less than `os.stat`.

    Source: the manual page statx(2), and the kernel's include/uapi/linux/stat.h for where each value lies.

    Raises:
        ImportError: this Python has no ctypes.
        AttributeError: the C library has no statx.
    """

    def __init__(self, most: int) -> None:
        import ctypes

        self._statx = ctypes.CDLL(None).statx
        buffer = ctypes.create_string_buffer(_STATX_BYTES * most)
        first = ctypes.addressof(buffer)
        self._rows = [ctypes.c_void_p(first + _STATX_BYTES * row) for row in range(most)]
        view = memoryview(buffer).cast("B")
        self._views = {"H": view.cast("H"), "I": view.cast("I"), "Q": view.cast("Q"), "q": view.cast("q")}
        self._encoding = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()

    def columns(self, descriptor: int, names: list[str]) -> Columns | None:
        """Return what is known of each name; None: of some nothing is."""
        statx, (encoding, errors) = self._statx, self._encoding
        for name, row in zip(names, self._rows):  # noqa: B905
            if statx(descriptor, name.encode(encoding, errors), _STATX_FLAGS, _STATX_MASK, row):
                return None
        modes, links = self._column("H", 28, names), self._column("I", 16, names)
        devices: Sequence[int] = ()
        if max(links) > 1 or not _all_regular(modes):
            pairs = zip(self._column("I", 136, names), self._column("I", 140, names), strict=True)
            devices = [os.makedev(major, minor) for major, minor in pairs]
        rest = [
            self._column(letter, at, names)
            for letter, at in (("I", 20), ("I", 24), ("Q", 40), ("q", 64), ("q", 112), ("Q", 48))
        ]
        return [modes, self._column("Q", 32, names), devices, links, *rest]

    def _column(self, letter: str, at: int, names: list[str]) -> list[int]:
        view = self._views[letter]
        step = _STATX_BYTES // view.itemsize
        values: list[int] = view[at // view.itemsize : len(names) * step : step].tolist()
        return values


class _Files:
    """Regular files of one folder, by columns, as a loop over every file in Python would cost as much as asking for it."""

    def __init__(self, prefix: str, names: list[str], columns: Columns) -> None:
        self.prefix, self.names = prefix, names
        self.modes, self.inodes, self.devices, self.names_each, self.users, self.groups = columns[:6]
        self.sizes, self.read_s, self.written_s, self.blocks = columns[6:]

    def __len__(self) -> int:
        return len(self.names)


class _Own:
    """What one folder's files end in: for each suffix files, bytes, the largest, and a few samples."""

    def __init__(self) -> None:
        self.suffixes: dict[str, list[Any]] = {}
        self.marks: set[str] = set()
        self.error: OSError | None = None  # the first entry of which nothing is known has it

    def add(self, files: _Files) -> None:
        by_ending: dict[str, list[int]] = {}
        # One letter without a dot: there is no ending.
        for index, ending in enumerate([name[name.rfind(".", 1) :] for name in files.names]):
            if ending in by_ending:
                by_ending[ending].append(index)
            else:
                by_ending[ending] = [index]
        for ending, indices in by_ending.items():
            suffix = _suffix_of_ending(ending)
            if suffix is not None:
                self._add(suffix, files, indices)
                continue
            by_suffix: dict[str, list[int]] = {}
            for index in indices:
                by_suffix.setdefault(suffix_of(files.names[index]), []).append(index)
            for suffix, some in by_suffix.items():
                self._add(suffix, files, some)

    def _add(self, suffix: str, files: _Files, indices: list[int]) -> None:
        kept = self.suffixes.get(suffix)
        if kept is None:
            if len(self.suffixes) >= MOST_SUFFIXES:
                suffix = OTHER
            kept = self.suffixes.setdefault(suffix, [0, 0, 0, []])
        # One without blocks is a hole, or lies on tape: reading it would bring it back.
        for index in indices[: max(0, MOST_SAMPLES - kept[0])]:
            if files.blocks[index] or files.sizes[index] < _SPARSE_BYTES:
                kept[3].append((files.prefix + files.names[index], files.sizes[index]))
        sizes = [files.sizes[index] for index in indices]
        kept[0] += len(sizes)
        kept[1] += sum(sizes)
        kept[2] = max(kept[2], max(sizes))

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
        self._statx: Statx | None = None
        with suppress(ImportError, AttributeError):  # os.stat does it too
            self._statx = Statx(_LISTED_AT_ONCE)
        self._pool: ThreadPoolExecutor | None = None

    def look(self, folders: list[Folder], budget_s: float) -> Part:
        """Return the part of these folders and of what is below them, deepest first, until the time is spent."""
        part = empty_part()
        todo, end = list(folders), time.monotonic() + budget_s
        while todo:
            path, depth, kind = todo.pop()
            try:
                todo += self._folder(path, depth, kind, part)
            except (FileNotFoundError, NotADirectoryError):
                part["vanished"] += 1
            except OSError as error:
                _unreadable(part, path, error)
            if time.monotonic() > end:
                break
        part["todo"] = todo
        return part

    def look_at_file(self, path: str) -> Part:
        """Return the part of one file that is the top itself."""
        part, own = empty_part(), _Own()
        folder, name = os.path.split(path)
        try:
            self._known(folder.rstrip("/") + "/", [name], _columns([os.lstat(path)]), part, own)
        except FileNotFoundError:
            part["vanished"] += 1
        own.add_to(part, "")
        return part

    def _folder(self, path: str, depth: int, kind: str, part: Part) -> list[Folder]:
        """Add one folder to the part and return the folders in it; what is in memory does not grow with the folder."""
        below: list[str] = []
        entries, own = 0, _Own()
        prefix = path.rstrip("/") + "/"
        # Asked below an open folder, the kernel does not look the whole path up for every file.
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with os.scandir(descriptor) as listing:
                while listed := list(islice(listing, _LISTED_AT_ONCE)):
                    entries += len(listed)
                    below += self._entries(descriptor, prefix, listed, part, own)
        finally:
            os.close(descriptor)
        kind = kind or min(own.marks, default="")
        own.add_to(part, kind)
        for mark in own.marks:
            marked = part["marked"].setdefault(mark, {"count": 0, "paths": []})
            marked["count"] += 1
            _name(marked["paths"], path)
        part["folders"] += 1
        part["depth"] = max(part["depth"], depth)
        _keep_largest(part["largest_folders"], entries, path)
        if own.error:
            _unreadable(part, path, own.error)
        return [(prefix + name, depth + 1, kind) for name in below]

    def _entries(self, descriptor: int, prefix: str, listed: list[Any], part: Part, own: _Own) -> list[str]:
        """Add entries of one open folder to the part, and to `own` what depends on what the folder turns out to be.

        Returns:
            the names of the folders among them that are to be looked through.
        """
        names, columns, errors = self._ask(descriptor, listed)
        for error in errors:
            if isinstance(error, FileNotFoundError):
                part["vanished"] += 1
            else:
                own.error = own.error or error
        return self._known(prefix, names, columns, part, own) if names else []

    def _known(self, prefix: str, names: list[str], columns: Columns, part: Part, own: _Own) -> list[str]:
        below: list[str] = []
        modes = columns[0]
        if not _MARKER_NAMES.isdisjoint(names):
            own.marks.update(MARKERS[name] for name in names if name in MARKERS)
        if not _all_regular(modes):
            for name, mode, device in zip(names, modes, columns[2], strict=True):
                if stat.S_ISLNK(mode):
                    part["links"] += 1
                    part["links_out"] += self._leads_out(prefix, name)
                elif stat.S_ISDIR(mode):
                    if self._enters(prefix + name, device, part):
                        below.append(name)
                elif not stat.S_ISREG(mode):
                    part["others"] += 1
            regular = [stat.S_ISREG(mode) for mode in modes]
            names, columns = list(compress(names, regular)), [list(compress(column, regular)) for column in columns]
        if names:
            files = _Files(prefix, names, columns)
            self._count(files, part)
            self._add_sizes(files, part)
            self._add_ages(files, part)
            own.add(files)
        return below

    def _count(self, files: _Files, part: Part) -> None:
        """Add numbers and blocks; a file of several names is left to whoever sees all of them."""
        part["files"] += len(files)
        part["bytes"] += sum(files.sizes)
        part["allocated"] += sum(files.blocks) * 512
        if max(files.names_each) > 1:
            inodes = zip(files.devices, files.inodes, files.names_each, files.sizes, files.blocks, strict=True)
            for device, inode, names, size, blocks in inodes:
                if names > 1:
                    part["hard_links"].append((device, inode, names, size, blocks * 512))
                    part["bytes"] -= size
                    part["allocated"] -= blocks * 512
        if max(files.sizes) >= _SPARSE_BYTES:
            pairs = zip(files.sizes, files.blocks, strict=True)
            part["sparse"] += sum(size >= _SPARSE_BYTES and blocks * 1024 < size for size, blocks in pairs)
        if self._user:
            self._count_unreadable(files, part)

    def _count_unreadable(self, files: _Files, part: Part) -> None:
        rights = set(zip(files.modes, files.users, files.groups, strict=True))
        doubtful = {each for each in rights if not self._readable(*each)}
        if not doubtful:
            return
        for name, *each in zip(files.names, files.modes, files.users, files.groups, strict=True):
            if tuple(each) in doubtful and not os.access(files.prefix + name, os.R_OK):
                part["unreadable_files"] += 1
                _name(part["unreadable_names"], files.prefix + name)

    def _readable(self, mode: int, user: int, group: int) -> bool:
        if user == self._user:
            return bool(mode & stat.S_IRUSR)
        return bool(mode & (stat.S_IRGRP if group in self._groups else stat.S_IROTH))

    def _add_sizes(self, files: _Files, part: Part) -> None:
        by_bits: dict[int, list[int]] = defaultdict(list)
        for size in files.sizes:
            by_bits[size.bit_length()].append(size)
        for bits, sizes in by_bits.items():
            _add(part["sizes"], bits, len(sizes), sum(sizes))
        part["empty"] += len(by_bits.get(0, ()))

    def _add_ages(self, files: _Files, part: Part) -> None:
        """Add when files were last written or read, by days before now."""
        newest_s = max(max(files.read_s), max(files.written_s))
        none_older_s = max(min(files.read_s), min(files.written_s))
        day = self._day(newest_s)
        if day == self._day(none_older_s):
            _add(part["ages"], day, len(files), sum(files.sizes))
        else:
            for used_s, size in zip(map(max, files.read_s, files.written_s), files.sizes, strict=True):
                _add(part["ages"], self._day(used_s), 1, size)
        if part["oldest_s"] is None or none_older_s < part["oldest_s"]:
            oldest_s = min(map(max, files.read_s, files.written_s))
            part["oldest_s"] = oldest_s if part["oldest_s"] is None else min(part["oldest_s"], oldest_s)

    def _day(self, used_s: int) -> int:
        return int((self._now_s - used_s) // DAY_S)

    def _ask(self, descriptor: int, listed: list[Any]) -> Known:
        """Return what is known of entries of an open folder; on slow storage many are asked for at once."""
        if self._slow and len(listed) >= _STAT_THREADS:
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(_STAT_THREADS)
            slices = [listed[first::_STAT_THREADS] for first in range(_STAT_THREADS)]
            some = list(self._pool.map(_known, slices))
            return (
                [name for names, _, _ in some for name in names],
                [list(chain(*column)) for column in zip(*(columns for _, columns, _ in some), strict=True)],
                [error for _, _, errors in some for error in errors],
            )
        begin, waits = time.monotonic(), _waits()
        names = [entry.name for entry in listed]
        columns = self._statx.columns(descriptor, names) if self._statx else None
        known: Known = _known(listed) if columns is None else (names, columns, [])
        if len(listed) >= _STAT_THREADS:
            late = time.monotonic() - begin > _SLOW_S * len(listed)
            self._slow = late and 2 * (_waits() - waits) > len(listed)
        return known

    def _leads_out(self, prefix: str, name: str) -> bool:
        try:
            target = os.path.normpath(os.path.join(prefix, os.readlink(prefix + name)))
        except OSError:
            return False
        return not (target + "/").startswith(self._top)

    def _enters(self, path: str, device: int, part: Part) -> bool:
        """Return whether a folder is looked through: not where another file system begins, unless that is asked for."""
        if device == self._device and path not in self._mounts:
            return True
        if self._cross:
            try:
                status = os.lstat(path)
            except OSError:
                return True  # looking through it tells what is wrong
            if not _is_above(status, path):
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


@lru_cache(4096)
def _suffix_of_ending(ending: str) -> str | None:
    """Return the suffix of all names that end so, from their last dot; None: it depends on more of the name."""
    return None if ending[1:].lower() in _COMPRESSIONS else suffix_of(f"x{ending}")


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


def _known(listed: list[Any]) -> Known:
    """Return what is known of entries, asked for one by one."""
    names, statuses, errors = [], [], []
    for entry in listed:
        try:
            statuses.append(entry.stat(follow_symlinks=False))
            names.append(entry.name)
        except OSError as error:
            errors.append(error)
    return names, _columns(statuses), errors


def _columns(statuses: list[os.stat_result]) -> Columns:
    # Source: Python's documentation of os.stat_result, the order of its items; times are whole seconds.
    if not statuses:
        return [()] * 10
    return [*list(zip(*statuses, strict=True))[:9], [status.st_blocks for status in statuses]]


def _all_regular(modes: Sequence[int]) -> bool:
    return all(map(stat.S_ISREG, set(modes)))


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


def _unreadable(part: Part, path: str, error: OSError) -> None:
    part["unreadable_count"] += 1
    _name(part["unreadable"], f"{path}: {error.strerror}")


def _add(histogram: dict[int, list[int]], key: int, files: int, size: int) -> None:
    kept = histogram.setdefault(key, [0, 0])
    kept[0] += files
    kept[1] += size


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
