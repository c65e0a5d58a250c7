"""Shards in an object store, read by ranges: obstore where a training runs, bounded tries, errors without secrets."""

from __future__ import annotations

import hashlib
import os
import random
import re
import tempfile
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Optional

from cordee.core.errors import DataError, UsageError
from cordee.core.units import parse_duration
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.packed.check import check_shard
from cordee.systems.data.node.shards.index import INDEX_NAME, ShardIndex
from cordee.wire.stores.access import anonymous, http_allowed

TIMEOUT_VARIABLE = "CORDEE_STORE_TIMEOUT"
_TOTAL_S, _CONNECT_S, _STALL_S = 120.0, 10.0, 30.0
_TRIES = 6
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0
# Status codes that another try may change; all others below 500 are an answer.
_BUSY = (408, 425, 429)
_ADVICE = {
    401: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    403: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ask for access to it",
    404: "check the address, and the store in AWS_ENDPOINT_URL",
}
# The client's threads do not survive a fork: a child that used it would wait for ever.
_used_by_process: Optional[int] = None


class ObjectMissing(DataError):
    """An object store has no such object, or no such bucket."""


class Objects:
    """Objects below one `s3://` address, read by several threads at once.

    Raises:
        DataError: obstore is not installed. UsageError: this process was forked from one that had used it.
    """

    def __init__(self, address: str) -> None:
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError:
            raise DataError(
                "reading from S3 needs obstore, which is not installed",
                given=address,
                next="install it where the training runs: the extra cordee[s3]",
            ) from None
        if _used_by_process not in (None, os.getpid()):
            raise UsageError(
                "a forked worker cannot read from S3: the connections stayed with its parent",
                given=address,
                allowed="threads (workers=0), or workers that are not forked",
                next='give the loader multiprocessing_context="forkserver", or let the data set read by its threads',
            )
        self.address = address.rstrip("/")
        self.total_s = _total_s()
        bucket, _, prefix = self.address[len("s3://") :].partition("/")
        self._obstore = obstore
        self._store = S3Store(
            bucket,
            prefix=prefix or None,
            config={"skip_signature": True} if anonymous() else None,
            client_options={
                "allow_http": http_allowed(),
                "connect_timeout": timedelta(seconds=min(_CONNECT_S, self.total_s)),
                "read_timeout": timedelta(seconds=min(_STALL_S, self.total_s / 2)),
                "timeout": timedelta(seconds=self.total_s),
            },
            # Tries are made, counted and bounded here.
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=self.total_s)},
        )

    def size(self, name: str) -> "tuple[int, str]":
        """Return an object's bytes and its version."""
        found = self._ask("look at", name, lambda: self._obstore.head(self._store, name))
        return found["size"], found["e_tag"] or str(found["last_modified"])

    def names(self) -> list[str]:
        """Return the names of the objects right below the address."""
        listed = self._ask("list", "", lambda: self._obstore.list_with_delimiter(self._store))
        return [found["path"].rpartition("/")[2] for found in listed["objects"]]

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`."""
        if not length:
            return b""

        def once() -> bytes:
            data = bytes(self._obstore.get_range(self._store, name, start=offset, length=length))
            if len(data) != length:
                raise EOFError(f"{len(data)} of {length} bytes came")
            return data

        data: bytes = self._ask(f"read {length} bytes at {offset} of", name, once)
        return data

    def _ask(self, request: str, name: str, attempt: Callable[[], Any]) -> Any:
        global _used_by_process
        _used_by_process = os.getpid()
        begun, pause_s = time.monotonic(), _FIRST_PAUSE_S
        for tried in range(1, _TRIES + 1):
            try:
                return attempt()
            except Exception as error:  # the client has no narrower base that all of its versions share
                said, final = _understood(error)
            passed_s = time.monotonic() - begun
            pause = random.uniform(pause_s / 2, pause_s)
            if final or tried == _TRIES or passed_s + pause > self.total_s:
                break
            time.sleep(pause)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        times = "" if tried == 1 else f", tried {tried} times in {passed_s:.1f} s"
        kind = ObjectMissing if final == _ADVICE[404] else DataError
        raise kind(
            f"the object store did not serve a request: {said}{times}",
            given=f"{request} {self.address}/{name}",
            next=final or f"is the store up? {TIMEOUT_VARIABLE} (such as 10min) waits longer",
        )


class RemoteFiles:
    """The shards of one index in an object store; each is compared with the index before its first use."""

    def __init__(self, index: ShardIndex, counts: ReadCounts) -> None:
        self._index = index
        self._counts = counts
        self._objects = Objects(index.root)
        self._checked: set[int] = set()
        self._locks: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()

    def read(self, shard: int, offset: int, length: int) -> bytes:
        """Return a stretch of a shard.

        Raises:
            DataError: the store did not give it. CorruptDataError: the shard is another one.
        """
        if shard not in self._checked:
            with self._lock:
                lock = self._locks.setdefault(shard, threading.Lock())
            with lock:
                if shard not in self._checked:
                    self._check(shard)
        return self._objects.read(self._index.shards[shard].name, offset, length)

    def reopen(self, shard: int) -> None:
        """Compare a shard with the index again at its next use."""
        self._checked.discard(shard)

    def close(self) -> None:
        """Nothing is kept open."""

    def _check(self, shard: int) -> None:
        name = self._index.shards[shard].name
        size, _ = self._objects.size(name)
        self._counts.opens += 1
        check_shard(self._index, shard, size, lambda offset, length: self._objects.read(name, offset, length))
        self._checked.add(shard)


def index_of(address: str) -> str:
    """Return a local copy of the index below an `s3://` address; one that is there already is used again."""
    folder = address[: -len(INDEX_NAME)] if address.endswith("/" + INDEX_NAME) else address
    return local_copy(Objects(folder), INDEX_NAME)


def local_copy(objects: Objects, called: str) -> str:
    """Return a local copy of an index in an object store; one that is there already is used again."""
    size, version = objects.size(called)
    whole = objects.address if called == INDEX_NAME else f"{objects.address}/{called}"
    name = hashlib.sha256(f"{whole} {size} {version}".encode()).hexdigest()[:32]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(cache, "cordee", "indexes", f"{name}.index")
    if os.path.exists(path):
        return path
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Ranks of many nodes may fetch it into one home at once: each writes its own, and the last one stays.
        number, partial = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f"{name}.", suffix=".partial")
        try:
            with os.fdopen(number, "wb") as file:
                for offset in range(0, size, 8 << 20):
                    file.write(objects.read(called, offset, min(8 << 20, size - offset)))
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            os.unlink(partial)
            raise
    except OSError as error:
        raise DataError(
            f"the index of a data set in an object store cannot be kept: {error.strerror}",
            given=path,
            next="set XDG_CACHE_HOME to a folder that you can write to, with room for it",
        ) from None
    return path


def _understood(error: Exception) -> "tuple[str, Optional[str]]":
    """Return what a failure means, and what to do where trying again is of no use.

    The client's words hold the server's answer, which may name an access key: only status and code are taken from them.
    """
    if isinstance(error, DataError):
        raise error
    text = str(error)
    status, code = re.search(r"status code: (\d{3})", text), re.search(r"<Code>([A-Za-z]{1,60})</Code>", text)
    if isinstance(error, FileNotFoundError) or type(error).__name__ == "NotFoundError":
        return "it is not there", _ADVICE[404]
    if status:
        number = int(status[1])
        final = number < 500 and number not in _BUSY
        said = f"status {number}" + (f" {code[1]}" if code else "")
        return said, _ADVICE.get(number, "check AWS_REGION and AWS_ENDPOINT_URL") if final else None
    if isinstance(error, EOFError):
        return f"the answer was cut off: {error}", None
    kind = re.search(r"kind: (Connect|Timeout|Decode|Body)\b", text)
    words = {"Connect": "no connection could be made", "Timeout": "it did not answer in time"}
    return words.get(kind[1], "the answer was cut off") if kind else "the connection broke", None


def _total_s() -> float:
    text = os.environ.get(TIMEOUT_VARIABLE)
    if not text:
        return _TOTAL_S
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(
            f"invalid {TIMEOUT_VARIABLE}", given=text, allowed=str(error), next="write it as 90s or 10min"
        ) from None
