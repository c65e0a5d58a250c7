"""Reads Prometheus endpoints of a node's ranks over and over, each in a thread of its own while it takes."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from typing import Any, Callable, Mapping, Optional, Sequence
from urllib.parse import urlsplit

from cordee.telemetry.node.metrics.points import PointSeries, Recorded
from cordee.telemetry.node.metrics.prometheus import read_exposition

ACCEPT = "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1"
MOST_BYTES = 4 << 20
TIMEOUT_S = 5.0
PATIENCE_S = 30.0
_CHUNK = 1 << 16

Ranks = Mapping[int, Mapping[str, Any]]


class ScrapeError(Exception):
    """Why an endpoint could not be read."""


def fetch(url: str, timeout_s: float = TIMEOUT_S, most_bytes: int = MOST_BYTES) -> str:
    """Return the text at a URL; it asks for nothing else, follows no redirection and uses no proxy.

    Raises:
        ScrapeError: there is no answer within the time, or it is an error or longer than the most that is read.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout_s)
    deadline = _Deadline(timeout_s)
    try:
        connection.connect()
        deadline.begin(connection.sock)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": ACCEPT, "User-Agent": "cordee"})
        response = connection.getresponse()
        if response.status != 200:
            raise ScrapeError(f"it answers {response.status} {response.reason[:60]}")
        found = _whole(response, most_bytes)
    except (OSError, http.client.HTTPException, ValueError) as error:
        late = deadline.passed or isinstance(error, socket.timeout)
        raise ScrapeError(f"no whole answer within {timeout_s:g} s" if late else _words(error)) from None
    finally:
        deadline.end()
        connection.close()
    if deadline.passed:
        raise ScrapeError(f"no whole answer within {timeout_s:g} s")
    return found.decode("utf-8", "replace")


def _whole(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    found = bytearray()
    while True:
        chunk = response.read(_CHUNK)
        found += chunk
        if len(found) > most_bytes:
            raise ScrapeError(f"it answers with more than {most_bytes >> 20} MiB")
        if not chunk:
            break
    if response.length:
        raise ScrapeError(f"its answer ends {response.length} bytes too early")
    return bytes(found)


class _Deadline:
    """Hangs up when the time is over, whatever the reader of the connection waits for."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._seconds = seconds
        self._timer: Optional[threading.Timer] = None

    def begin(self, connected: socket.socket) -> None:
        self._timer = threading.Timer(self._seconds, self._hang_up, [connected])
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _hang_up(self, connected: socket.socket) -> None:
        self.passed = True
        try:
            connected.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


class Endpoint:
    """One endpoint of one node or rank.

    Args:
        url: with everything filled in.
        every_s: seconds between two readings.
        patterns: of the names that are kept.
        rank, attempt: whose values they are.
    """

    def __init__(self, url: str, every_s: float, patterns: Sequence[str], rank: int, attempt: int) -> None:
        self.url, self.rank, self.attempt = url, rank, attempt
        self._every_s, self._patterns = every_s, tuple(patterns)
        self._series = PointSeries()
        self._due = 0.0
        self._busy = False
        self._failing_since: Optional[float] = None
        self._reason = ""
        self.left_out = self.unreadable = 0

    def read_if_due(self, now: float, take: Callable[[Endpoint, float, list[Recorded]], None]) -> None:
        """Begin to read it when it is time to, unless the last reading still goes on."""
        if now < self._due or self._busy:
            return
        self._due = now + self._every_s
        self._busy = True
        threading.Thread(target=self._read, args=[take], daemon=True).start()

    def trouble(self, now: float, patience_s: float) -> str:
        """Return why its values are missing, once it has been failing for longer than is usual at a start; else nothing."""
        since = self._failing_since
        return self._reason if since is not None and now - since >= patience_s else ""

    def _read(self, take: Callable[[Endpoint, float, list[Recorded]], None]) -> None:
        try:
            text = fetch(self.url, min(TIMEOUT_S, max(1.0, self._every_s)))
            moment = time.time()
            found = read_exposition(text, moment, self._patterns)
            if not found.points and found.unreadable:
                raise ScrapeError("it answers with what is no Prometheus text")
            self.left_out, self.unreadable = found.left_out, found.unreadable
            take(self, moment, self._series.take(found.points))
            self._failing_since, self._reason = None, ""
        except Exception as error:
            self._reason = str(error) if isinstance(error, ScrapeError) else f"{type(error).__name__}: {error}"
            if self._failing_since is None:
                self._failing_since = time.monotonic()
        finally:
            self._busy = False


class Scraping:
    """All endpoints of a node, as the ranks come and go.

    Args:
        asked: of plan.json: `url`, `port`, `every_s`, `per`, `metrics` of each.
        take: takes (rank, attempt, UTC seconds, values) from any thread.
        patience_s: an endpoint may fail for so long before its failure is told.
    """

    def __init__(
        self,
        asked: Sequence[Mapping[str, Any]],
        take: Callable[[int, int, float, list[Recorded]], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._asked, self._take, self._patience_s = asked, take, patience_s
        self._endpoints: dict[tuple[str, int, int], Endpoint] = {}

    def turn(self, ranks: Ranks) -> None:
        """Begin to read what is due."""
        now = time.monotonic()
        wanted = dict(endpoint for asked in self._asked for endpoint in _endpoints(asked, ranks))
        self._endpoints = {
            key: self._endpoints.get(key) or Endpoint(key[0], asked["every_s"], asked["metrics"], *key[1:])
            for key, asked in wanted.items()
        }
        for endpoint in self._endpoints.values():
            endpoint.read_if_due(now, self._taken)

    def missing(self) -> dict[str, str]:
        """Return why values are missing, by endpoint."""
        now = time.monotonic()
        found = {endpoint.url: endpoint.trouble(now, self._patience_s) for endpoint in self._endpoints.values()}
        return {url: reason for url, reason in found.items() if reason}

    def remarks(self) -> list[str]:
        """Return what should be known of the values."""
        most = max((endpoint.left_out for endpoint in self._endpoints.values()), default=0)
        if not most:
            return []
        return [
            "an endpoint has more series than are kept (500): `metrics` of [[metrics.scrape]] chooses those that are"
        ]

    def _taken(self, endpoint: Endpoint, moment: float, values: list[Recorded]) -> None:
        self._take(endpoint.rank, endpoint.attempt, moment, values)


def _endpoints(asked: Mapping[str, Any], ranks: Ranks) -> list[tuple[tuple[str, int, int], Mapping[str, Any]]]:
    """Return (URL, rank, attempt) of the endpoints that one entry stands for; a node's belongs to its first rank."""
    chosen = sorted(ranks) if asked["per"] == "rank" else sorted(ranks)[:1]
    found = []
    for rank in chosen:
        local_rank = int(ranks[rank].get("local_rank", 0))
        port = (asked["port"] or 0) + local_rank
        url = asked["url"]
        for name, value in (("port", port), ("rank", rank), ("local_rank", local_rank)):
            url = url.replace(f"{{{name}}}", str(value))
        found.append(((url, rank, int(ranks[rank].get("attempt", 0))), asked))
    return found


def _words(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    return str(error)[:200] or type(error).__name__
