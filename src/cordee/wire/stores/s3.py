"""S3 and what speaks like it, by obstore."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cached_property
from typing import IO, Any, TypeVar

from cordee.core.errors import DataError
from cordee.wire.stores import refusals
from cordee.wire.stores._base import ObjectStore, Stored
from cordee.wire.stores.access import anonymous, http_allowed
from cordee.wire.stores.local import ended_early, pieces_of
from cordee.wire.stores.patience import Passing, Patience, gave_up

# One request: large enough for the store's full rate, small enough for a limit of time to mean something.
REQUEST_BYTES = 16 << 20
PAGE = 1000
_PARTS_AT_ONCE = 4
# The ETag of an object that was put in one piece, or as one part, but for these.
_MD5 = re.compile(r'"?([0-9a-fA-F]{32})(-1)?"?')
_DIRECTORY_BUCKET = "--x-s3"
_ENCRYPTION = "x-amz-server-side-encryption"
_CLIENT_KEY = "x-amz-server-side-encryption-customer-algorithm"
_T = TypeVar("_T")


class S3Store(ObjectStore):
    """Objects below `s3://bucket/prefix`; path-style addresses, as the servers of centres want them."""

    def __init__(self, address: str, patience: Patience) -> None:
        self.address, self.patience = address, patience
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        self._bucket, self._prefix = bucket, prefix
        self._allow_http = http_allowed()
        self._anonymous = anonymous()

    @cached_property
    def _reading(self) -> Any:
        """A client without tries of its own: they are made, counted and bounded here."""
        times = {"timeout": timedelta(seconds=self.patience.total_s)}
        return self._client({**times, "read_timeout": timedelta(seconds=self.patience.stall_s)}, 0)

    @cached_property
    def _writing(self) -> Any:
        """A client that tries each part again by itself; while a part is sent, nothing is read."""
        return self._client({"timeout": timedelta(seconds=self.patience.total_s)}, self.patience.tries - 1)

    def _client(self, times: dict[str, timedelta], retries: int) -> Any:
        try:
            from obstore.store import S3Store as Client
        except ImportError:
            raise DataError(
                "reading and writing S3 needs obstore, which is not installed",
                given=self.address,
                next="install the extra: cordee[s3]",
            )
        return Client(
            self._bucket,
            prefix=self._prefix or None,
            config={"skip_signature": True} if self._anonymous else None,
            client_options={
                "allow_http": self._allow_http,
                "connect_timeout": timedelta(seconds=self.patience.connect_s),
                **times,
            },
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=self.patience.total_s)},
        )

    def list(self, below: str = "") -> Iterator[Stored]:
        last, page = "", self._page(below, None)
        while page:
            if page[0].name <= last:  # a store that does not know `start-after` begins anew
                yield from self._rest(below, last)
                return
            yield from page
            last = page[-1].name
            page = self._page(below, last)

    def _rest(self, below: str, after: str) -> Sequence[Stored]:
        """Return what comes behind a name, by one listing of all that is there."""

        def whole() -> Sequence[Stored]:
            chunks = self._reading.list(below or None, chunk_size=PAGE)
            return [one for chunk in chunks for one in map(_stored, chunk) if one.name > after]

        return self._ask("list", below, whole)

    def _page(self, below: str, after: str | None) -> Sequence[Stored]:
        def first() -> Sequence[Stored]:
            for chunk in self._reading.list(below or None, offset=after, chunk_size=PAGE):
                return [_stored(each) for each in chunk]
            return []

        return self._ask("list", below, first)

    def look(self, name: str) -> Stored | None:
        try:
            return self._ask("look at", name, lambda: _stored(self._reading.head(name)))
        except refusals.NoSuchObject as error:
            if error.given == self.path(name):
                return None
            raise

    def read(self, name: str, start: int = 0, length: int | None = None, version: str = "") -> bytes:
        if length is None:
            stored = self.look(name)
            if stored is None:
                raise refusals.not_there(self.path(name))
            length = max(0, stored.bytes - start)
        pieces = []
        while length:
            wanted = min(length, REQUEST_BYTES)
            piece = self._range(name, start, wanted, version)
            if len(piece) < wanted:
                raise ended_early(self.path(name), length - len(piece))
            pieces.append(piece)
            start, length = start + wanted, length - wanted
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _range(self, name: str, start: int, length: int, version: str) -> bytes:
        asked = {"range": (start, start + length), **({"if_match": version} if version else {})}
        return self._ask(
            f"read {length} bytes at {start} of", name, lambda: bytes(self._reading.get(name, options=asked).bytes())
        )

    def agrees(self, stored: Stored, md5: bytes) -> bool | None:
        found = _MD5.fullmatch(stored.version)
        if found is None or self._bucket.endswith(_DIRECTORY_BUCKET):
            return None
        # Of parts it is the MD5 of their MD5s, and where the parts begin is known of a single one only.
        told = hashlib.md5(md5, usedforsecurity=False).digest() if found[2] else md5
        return told.hex() == found[1].lower()

    def encrypts(self, name: str) -> bool:
        if self._anonymous:  # nobody without a key reads what a key management service encrypts
            return False
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        import obstore

        def headers() -> Any:
            url = obstore.sign(self._reading, "HEAD", name, timedelta(minutes=5))
            try:
                with urlopen(Request(url, method="HEAD"), timeout=self.patience.stall_s) as answer:
                    return answer.headers
            except HTTPError as error:  # its words would hold the signed address
                if error.code >= 500:
                    raise Passing(str(error.code)) from None
                raise DataError(f"the store refused the request: {error.code}", given=self.path(name)) from None
            except URLError:
                raise Passing("no connection could be made") from None

        told = self._ask("look at", name, headers)
        return told.get(_ENCRYPTION, "").startswith("aws:kms") or bool(told.get(_CLIENT_KEY))

    def write(self, name: str, content: IO[bytes] | Iterable[bytes]) -> Stored:
        sent = _Sent(content)
        try:
            self._writing.put(name, sent.pieces(), chunk_size=REQUEST_BYTES, max_concurrency=_PARTS_AT_ONCE)
        except BaseException as error:
            if sent.failure is not None:
                raise sent.failure
            if not isinstance(error, Exception):
                raise
            raise self._refused("write", name, error, self.patience.tries)
        stored = self.look(name)
        if stored is None or stored.bytes != sent.bytes:
            raise DataError(
                "the store took an object and holds another size",
                given=f"{self.path(name)}: {sent.bytes} bytes sent, {'none' if stored is None else stored.bytes} there",
                next="write it again; if it repeats, tell those who run the store",
            )
        return stored

    def delete(self, name: str) -> None:
        try:
            self._ask("remove", name, lambda: self._reading.delete(name))
        except refusals.NoSuchObject as error:
            if error.given != self.path(name):
                raise

    def _ask(self, request: str, name: str, attempt: Callable[[], _T]) -> _T:
        def once() -> _T:
            try:
                return attempt()
            except Exception as error:
                raise refusals.understood(error, self.path(name), self._bucket)

        return self.patience.ask(f"{request} {self.path(name)}", once)

    def _refused(self, request: str, name: str, error: Exception, tried: int) -> DataError:
        found = refusals.understood(error, self.path(name), self._bucket)
        if isinstance(found, DataError):
            return found
        return gave_up(f"{request} {self.path(name)}", str(found), *refusals.tries(error, tried))


class _Sent:
    """Content on its way: counts its bytes, and keeps the error that reading it raised."""

    def __init__(self, content: IO[bytes] | Iterable[bytes]) -> None:
        self.bytes, self.failure = 0, None
        self._content = content

    failure: BaseException | None

    def pieces(self) -> Iterator[bytes]:
        try:
            for piece in pieces_of(self._content, REQUEST_BYTES):
                self.bytes += len(piece)
                yield piece
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = error
            raise


def _stored(found: Any) -> Stored:
    return Stored(found["path"], found["size"], found["e_tag"] or "")
