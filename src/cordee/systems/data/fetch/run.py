"""A list of URLs fetched side by side: no site is asked more often than it bears, and each URL ends in the account."""

from __future__ import annotations

import heapq
import json
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError
from cordee.core.units import utc_text
from cordee.systems.data.fetch.download import ACCOUNT, Download, Gone, Later, file_name
from cordee.systems.data.fetch.listing import WantedFile
from cordee.systems.data.fetch.reach import Refused, site_of

_TRIES = 3
_PAUSE_S, _MOST_PAUSE_S = 2.0, 120.0
_MOST_STRAINED = 5  # a site that says so often, one after the other, that it is asked too much is left in peace
_READ_AGAIN_S = 30.0
_MOST_NAMED = 1000


class BlockList:
    """Sites that nobody is to ask, one a line, in a file that all share; it is read again while it changes.

    Args:
        path: of the file, None: there is none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._sites = path, frozenset[str]()
        self._due = 0.0
        self._lock = threading.Lock()

    def require(self, host: str) -> None:
        """Raise `Refused` where a host, or what it lies below, is on the list, or the list cannot be read."""
        with self._lock:
            if self._path is not None and time.monotonic() >= self._due:
                self._due = time.monotonic() + _READ_AGAIN_S
                try:
                    lines = self._path.read_text().splitlines()
                except (OSError, UnicodeDecodeError) as error:
                    self._due = 0.0
                    raise Refused("blocked", f"the list of blocked sites cannot be read: {error}") from None
                self._sites = frozenset(line.partition("#")[0].strip().lower() for line in lines) - {""}
        labels = host.rstrip(".").lower().split(".")
        named = next((name for at in range(len(labels)) if (name := ".".join(labels[at:])) in self._sites), None)
        if named is not None:
            raise Refused("blocked", f"{named} is on the list of blocked sites")


@dataclass
class _Site:
    waiting: deque[tuple[WantedFile, int]] = field(default_factory=deque)
    due: float = 0.0
    strained: int = 0
    busy: int = 0
    queued: bool = False


@dataclass
class FetchSummary:
    """How many URLs ended how, and which were not fetched: (URL, why)."""

    counts: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    seconds: float = 0.0
    named: dict[str, list[dict[str, str]]] = field(default_factory=lambda: {"refused": [], "gone": [], "failed": []})


class FetchRun:
    """Fetches a list into a folder. What the account says is fetched, and is there, is not fetched again.

    Args:
        folder: is made where it is not there.
        download: fetches one.
        blocked: sites that are not asked.
        workers: how many are fetched at a time; `per_site`: from one site.
        rate: requests per second to one site.
        tell: called with the number of URLs that have ended, and that of all.

    Raises:
        CordeeError: the folder, or the account in it, cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        download: Download,
        blocked: BlockList,
        workers: int = 16,
        per_site: int = 4,
        rate: float = 5.0,
        tell: Callable[[int, int], None] = lambda done, all_of_them: None,
    ) -> None:
        self._folder, self._download, self._blocked = folder, download, blocked
        self._workers, self._per_site, self._gap_s, self._tell = workers, per_site, 1 / rate, tell
        self._changed = threading.Condition()
        self._sites: dict[str, _Site] = {}
        self._ready: list[tuple[float, str]] = []
        self._open = 0
        self._summary = FetchSummary()
        self._stopped: BaseException | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._account = os.open(folder / ACCOUNT, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise CordeeError(f"cannot write there: {error.strerror}", given=str(folder)) from None

    def run(self, wanted: list[WantedFile]) -> FetchSummary:
        """Fetch all of them.

        Raises:
            CordeeError: the disk is full, or refuses otherwise.
        """
        began = time.monotonic()
        before = self._before()
        taken: dict[str, WantedFile] = {}
        for one in wanted:
            try:
                name = file_name(one)
                if taken.setdefault(name, one) is not one:
                    raise Refused("name", f"another URL of the list has the name {name}")
                host = self._download.host_of(one.url)
            except Refused as refused:
                self._note(one, "refused", why=refused.why, text=str(refused))
                continue
            if before.get(name) == (one.url, self._size(name)):
                self._note(one, "already", file=name)
                continue
            self._sites.setdefault(site_of(host), _Site()).waiting.append((one, 1))
            self._open += 1
        self._total = len(wanted)
        for name in self._sites:
            self._queue(name)
        try:
            with ThreadPoolExecutor(self._workers, "cordee-fetch") as pool:
                for working in [pool.submit(self._work) for _ in range(self._workers)]:
                    working.result()
        except OSError as error:
            raise CordeeError(f"what was fetched cannot be written: {error}", given=str(self._folder)) from None
        finally:
            os.close(self._account)
        self._summary.seconds = time.monotonic() - began
        return self._summary

    def _before(self) -> dict[str, tuple[str, int]]:
        """Return what the account says was fetched: URL and bytes by name; torn lines are passed over."""
        found: dict[str, tuple[str, int]] = {}
        content = (self._folder / ACCOUNT).read_bytes()
        for line in content.splitlines():
            try:
                told = json.loads(line)
                if told["status"] == "fetched":
                    found[told["file"]] = (told["url"], told["bytes"])
            except (ValueError, KeyError, TypeError):
                continue
        if content and not content.endswith(b"\n"):
            os.write(self._account, b"\n")
        return found

    def _size(self, name: str) -> int:
        try:
            return (self._folder / name).lstat().st_size
        except OSError:
            return -1

    def _work(self) -> None:
        while True:
            with self._changed:
                taken = self._next()
            if taken is None:
                return
            name, one, tries = taken
            try:
                again = self._fetch(name, one, tries)
            except BaseException as error:
                with self._changed:
                    self._stopped = error
                    self._changed.notify_all()
                raise
            with self._changed:
                site = self._sites[name]
                site.busy -= 1
                if again:
                    site.waiting.append((one, tries + 1))
                else:
                    self._open -= 1
                self._queue(name)
                self._changed.notify_all()

    def _queue(self, name: str) -> None:
        """Put a site among those that may be asked, if there is something to ask it and it is not there."""
        site = self._sites[name]
        if site.waiting and site.busy < self._per_site and not site.queued:
            site.queued = True
            heapq.heappush(self._ready, (site.due, name))

    def _next(self) -> tuple[str, WantedFile, int] | None:
        """Wait until a site may be asked, and return it with what is to be fetched from it; None: all have ended."""
        while self._open and self._stopped is None:
            if not self._ready:
                self._changed.wait()
                continue
            due, name = self._ready[0]
            site, now = self._sites[name], time.monotonic()
            if due < site.due:  # it wants to be asked later than when this was noted
                heapq.heapreplace(self._ready, (site.due, name))
                continue
            if due > now:
                self._changed.wait(due - now)
                continue
            heapq.heappop(self._ready)
            site.queued = False
            one, tries = site.waiting.popleft()
            site.busy += 1
            site.due = now + self._gap_s
            self._queue(name)
            return name, one, tries
        self._changed.notify_all()
        return None

    def _fetch(self, name: str, one: WantedFile, tries: int) -> bool:
        """Fetch one and note it; return whether it is to be tried again."""
        site = self._sites[name]
        if site.strained >= _MOST_STRAINED:
            self._note(one, "failed", why="strained", text=f"{name} has said too often that it is asked too much")
            return False
        began = time.monotonic()
        try:
            got = self._download.fetch(one)
        except Refused as refused:
            self._note(one, "refused", why=refused.why, text=str(refused))
        except Gone as gone:
            self._note(one, "gone", why="gone", text=str(gone))
        except Later as later:
            with self._changed:
                pause_s = later.after_s if later.after_s is not None else _PAUSE_S * 2 ** (tries - 1)
                site.strained += later.strained
                site.due = max(site.due, time.monotonic() + min(pause_s, _MOST_PAUSE_S))
            if tries < _TRIES and later.again:
                return True
            self._note(one, "failed", why="later", text=str(later), tries=tries)
        else:
            site.strained = 0
            self._summary.bytes += got.bytes - got.resumed
            about = {"file": got.name, "bytes": got.bytes, "sha256": got.sha256, "address": got.address}
            more = {"from": got.url, "resumed": got.resumed, "redirects": got.redirects}
            self._note(one, "fetched", **about, **more, seconds=round(time.monotonic() - began, 3))
        return False

    def _note(self, one: WantedFile, status: str, **about: Any) -> None:
        entry = {"url": one.url, "status": status, **about, "at": utc_text()}
        with self._changed:
            if status != "already":
                os.write(self._account, json.dumps(entry).encode() + b"\n")
            self._summary.counts[status] += 1
            named = self._summary.named.get(status)
            if named is not None and len(named) < _MOST_NAMED:
                named.append({"url": one.url, "why": about["why"], "text": about["text"]})
            self._tell(sum(self._summary.counts.values()), getattr(self, "_total", 0))
