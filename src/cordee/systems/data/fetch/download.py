"""One URL: redirects that are looked at one by one, parts that are resumed, checks before a file gets its name."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import re
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from cordee.core.units import format_size
from cordee.systems.data.fetch.connection import Exchange
from cordee.systems.data.fetch.content import HEAD_BYTES, look_at
from cordee.systems.data.fetch.listing import WantedFile
from cordee.systems.data.fetch.reach import Reach, Refused, resolve

_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_GONE = (404, 410, 451)
_LATER = (408, 425, 429, 500, 502, 503, 504)
_HEAD_S = 15.0  # for names, connecting, redirects and the answer's head together
_WATCHED_S = 12.0  # the rate is judged over so long
_PATIENT_S = 10.0
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES)
_PIECE_BYTES = 1 << 18
_HOOK_S = 300.0
_NAME_BYTES = 200


class Gone(Exception):
    """The server says that there is nothing."""


class Later(Exception):
    """It may be had later.

    Attributes:
        after_s: when the server wants to be asked again, None: it does not say.
        strained: whether the server said that it is asked too often.
        again: whether it is worth another try now: who is slow on purpose is not asked twice.
    """

    def __init__(self, text: str, after_s: float | None = None, *, strained: bool = False, again: bool = True) -> None:
        super().__init__(text)
        self.after_s, self.strained, self.again = after_s, strained, again


@dataclass(frozen=True)
class Limits:
    """What one URL may take.

    Attributes:
        least_rate: bytes/s that a server must give over twelve seconds.
        most_s: for all of it.
        most_bytes: of the file.
        hook: a command that gets the file as its last word, and says by its exit code 0 that it is harmless.
        context: of TLS, None: the usual one.
    """

    least_rate: float = 10_000.0
    most_s: float = 3600.0
    most_bytes: int = 50 * 10**9
    hook: tuple[str, ...] = ()
    context: ssl.SSLContext | None = None


@dataclass
class FetchedFile:
    """A file that was fetched."""

    name: str
    bytes: int
    sha256: str
    address: str
    url: str
    resumed: int = 0
    redirects: list[str] = field(default_factory=list)


def file_name(wanted: WantedFile) -> str:
    """Return the name of a file in its folder: as the list says, else of the URL's digest and suffix.

    Raises:
        Refused: the list's name is none.
    """
    if wanted.name:
        bad = "/" in wanted.name or wanted.name.startswith((".", "-")) or any(ord(one) < 32 for one in wanted.name)
        if bad or len(wanted.name.encode(errors="replace")) > _NAME_BYTES:
            raise Refused("name", f"{wanted.name[:80]!r} is no name of a file here: no folder, no dot at its beginning")
        if wanted.name in (ACCOUNT,):
            raise Refused("name", f"{wanted.name} is the account's")
        return wanted.name
    path = wanted.url.partition("#")[0].partition("?")[0]
    suffix = re.search(r"[^/](\.[A-Za-z0-9]{1,8}){1,2}$", path.partition("://")[2].partition("/")[2])
    return hashlib.sha256(wanted.url.encode()).hexdigest()[:24] + ("" if suffix is None else suffix[0][1:])


ACCOUNT = "fetch.jsonl"


class Download:
    """Fetches URLs into one folder, each whole or not at all.

    Args:
        folder: where files are made.
        reach: where may be fetched from.
        limits: of each.
        find: returns the addresses of a host.
        allowed: asked before each request with the host; it raises `Refused` where the host is blocked.
    """

    def __init__(
        self,
        folder: Path,
        reach: Reach,
        limits: Limits,
        find: Callable[[str, int], Sequence[str]] = resolve,
        allowed: Callable[[str], None] = lambda host: None,
    ) -> None:
        self._folder, self._reach, self._limits, self._find, self._allowed = folder, reach, limits, find, allowed

    def host_of(self, url: str) -> str:
        """Return the host of a URL that may be fetched, as far as it tells by itself.

        Raises:
            Refused: it may not.
        """
        host = str(self._reach.split(url).hostname)
        self._allowed(host)
        return host

    def fetch(self, wanted: WantedFile) -> FetchedFile:
        """Fetch one file.

        Raises:
            Refused, Gone, Later: it was not; what is there of it is kept where it can be gone on with.
            OSError: the disk refuses.
        """
        name = file_name(wanted)
        part = self._folder / f".{name}.part"
        known = _known_part(part, wanted.url)
        headers = {"User-Agent": "cordee-data-fetch", "Accept-Encoding": "identity", "Accept": "*/*"}
        if known:
            headers |= {"Range": f"bytes={part.stat().st_size}-", "If-Range": known}
        began = time.monotonic()
        try:
            with self._ask(wanted.url, headers, began) as asked:
                return self._take(asked, wanted, name, part, began)
        except (OSError, http.client.HTTPException, EOFError) as error:
            if isinstance(error, OSError) and (error.filename is not None or error.errno in _OF_DISK):
                raise
            again = time.monotonic() - began < _PATIENT_S
            raise Later(f"{type(error).__name__}: {error}", again=again) from None

    def _ask(self, url: str, headers: dict[str, str], began: float) -> _Response:
        """Ask until there is an answer that is no redirect; each place is looked at as if it stood in the list."""
        passed: list[str] = []
        while True:
            parts = self._reach.split(url)
            self._allowed(str(parts.hostname))
            exchange = Exchange(parts, self._reach, self._find, headers, began + _HEAD_S, self._limits.context)
            status, place = exchange.answer.status, exchange.answer.getheader("Location")
            if status not in _REDIRECTS or place is None:
                return _Response(exchange, url, passed)
            exchange.__exit__(None, None, None)
            passed.append(url)
            url = urljoin(url, place)
            if len(passed) > _MOST_REDIRECTS:
                raise Refused("redirect", f"it leads to more than {_MOST_REDIRECTS} other places")
            if parts.scheme == "https" and url.startswith("http:"):
                raise Refused("redirect", "it leads from https to http")

    def _take(self, asked: _Response, wanted: WantedFile, name: str, part: Path, began: float) -> FetchedFile:
        answer = asked.exchange.answer
        _judge_status(answer)
        at = _continued(answer, part)
        length = answer.length
        if length is not None and at + length > self._limits.most_bytes:
            raise Refused("size", f"it has {format_size(at + length)}")
        if answer.getheader("Content-Encoding", "identity").lower() not in ("", "identity"):
            raise Refused("encoding", f"it comes as {answer.getheader('Content-Encoding')}, which was not asked for")
        digests = {"sha256": hashlib.sha256(), "md5": hashlib.md5(usedforsecurity=False)}
        said = answer.getheader("Content-Type", "")
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | (0 if at else os.O_TRUNC), 0o644)
        with os.fdopen(descriptor, "r+b") as file:
            _note_part(part, wanted.url, answer)
            head = b""
            while at and (piece := file.read(_PIECE_BYTES)):
                head = head or piece[:HEAD_BYTES]
                for digest in digests.values():
                    digest.update(piece)
            looked = len(head) >= HEAD_BYTES
            size = at
            for piece in self._pieces(asked.exchange, began):
                size += len(piece)
                if size > self._limits.most_bytes:
                    self._drop(part)
                    raise Refused("size", f"it has more than {format_size(self._limits.most_bytes)}")
                file.write(piece)
                for digest in digests.values():
                    digest.update(piece)
                if not looked:
                    head += piece[: HEAD_BYTES - len(head)]
                    looked = len(head) >= HEAD_BYTES
                    if looked:
                        self._look(head, said, wanted, part)
            if length is not None and size != at + length:
                raise Later(f"the connection ended after {format_size(size)} of {format_size(at + length)}")
            self._look(head, said, wanted, part)
            file.flush()
            os.fsync(file.fileno())
        for kind, digest in digests.items():
            asked_for = getattr(wanted, kind)
            if asked_for and digest.hexdigest() != asked_for:
                self._drop(part)
                raise Refused("checksum", f"its {kind} is {digest.hexdigest()}, not {asked_for}")
        self._scan(part)
        os.replace(part, self._folder / name)
        _facts_of(part).unlink(missing_ok=True)
        return FetchedFile(
            name, size, digests["sha256"].hexdigest(), asked.exchange.address, asked.url, at, asked.passed
        )

    def _pieces(self, exchange: Exchange, began: float) -> Any:
        """Yield the body while it comes fast enough."""
        since, counted = time.monotonic(), 0
        while True:
            now = time.monotonic()
            if now - began > self._limits.most_s:
                raise Later(f"it takes longer than {self._limits.most_s:.0f} s", again=False)
            if now - since >= _WATCHED_S:
                if counted < self._limits.least_rate * (now - since):
                    rate = format_size(counted / (now - since))
                    raise Later(f"it comes at {rate}/s, too slow", again=False)
                since, counted = now, 0
            try:
                piece = exchange.read(_PIECE_BYTES, since + _WATCHED_S - now)
            except TimeoutError:
                raise Later(f"nothing came for {_WATCHED_S:.0f} s", again=False) from None
            if not piece:
                return
            counted += len(piece)
            yield piece

    def _look(self, head: bytes, said: str, wanted: WantedFile, part: Path) -> None:
        try:
            look_at(head, said, wanted.type)
        except Refused:
            self._drop(part)
            raise

    def _scan(self, part: Path) -> None:
        """Have the site's command look at the file, before it gets its name."""
        if not self._limits.hook:
            return
        try:
            done = subprocess.run(
                [*self._limits.hook, str(part)],
                capture_output=True,
                timeout=_HOOK_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self._drop(part)
            raise Refused("scan", f"{self._limits.hook[0]} could not look at it: {error}") from None
        if done.returncode != 0:
            self._drop(part)
            said = " ".join((done.stdout + done.stderr).decode(errors="replace").split())[-200:]
            raise Refused("scan", f"{self._limits.hook[0]} ended with {done.returncode}: {said}")

    @staticmethod
    def _drop(part: Path) -> None:
        part.unlink(missing_ok=True)
        _facts_of(part).unlink(missing_ok=True)


@dataclass
class _Response:
    exchange: Exchange
    url: str
    passed: list[str]

    def __enter__(self) -> _Response:
        return self

    def __exit__(self, *about: Any) -> None:
        self.exchange.__exit__(*about)


def _judge_status(answer: http.client.HTTPResponse) -> None:
    status = answer.status
    if status in (200, 206):
        return
    if status in _GONE:
        raise Gone(f"{status} {answer.reason}")
    if status in _LATER or status == 416:
        after = answer.getheader("Retry-After", "")
        raise Later(
            f"{status} {answer.reason}", float(after) if after.isdigit() else None, strained=status in (429, 503)
        )
    raise Refused("status", f"{status} {answer.reason}")


def _continued(answer: http.client.HTTPResponse, part: Path) -> int:
    """Return where the body goes on in the part that is there; 0: it begins anew."""
    if answer.status != 206:
        return 0
    begins = re.match(r"bytes (\d+)-", answer.getheader("Content-Range", ""))
    size = part.stat().st_size if part.exists() else 0
    if begins is None or int(begins[1]) != size:
        raise Later("the server goes on at another place than it was asked to")
    return size


def _facts_of(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _note_part(part: Path, url: str, answer: http.client.HTTPResponse) -> None:
    tag = answer.getheader("ETag", "")
    if answer.status == 200:
        strong = tag if tag and not tag.startswith("W/") else ""
        _facts_of(part).write_text(json.dumps({"url": url, "etag": strong}))


def _known_part(part: Path, url: str) -> str:
    """Return the tag of the file of which a part is there; empty: there is none that can be gone on with."""
    try:
        facts = json.loads(_facts_of(part).read_text())
        if facts["url"] == url and part.stat().st_size > 0:
            return str(facts["etag"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return ""
