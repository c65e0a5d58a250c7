"""The seam of stores: packing, verifying and surveying ask a folder and an object store the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple


class Stored(NamedTuple):
    """An object: its name below the store's address, its size, and what changes with its content (ETag, times)."""

    name: str
    bytes: int
    version: str


class ObjectStore(ABC):
    """Objects below one address. Any of its methods may run in several threads at once.

    Everything raises DataError when storage refuses or does not answer in time: with the request, how long and how often
    it was tried, and never with credentials.

    Attributes:
        address: as people write it, without a slash at the end.
    """

    address: str

    @abstractmethod
    def list(self, below: str = "") -> Iterator[Stored]:
        """Give all objects below a folder of the store, at any depth, in the order of their names' UTF-8 bytes.

        A folder that is not there has none: object stores know no folders.
        """

    @abstractmethod
    def look(self, name: str) -> Stored | None:
        """Return what is known of one object; None: it is not there."""

    @abstractmethod
    def read(self, name: str, start: int = 0, length: int | None = None, version: str = "") -> bytes:
        """Return a range of an object, in as many requests as it takes; up to its end without `length`.

        Raises:
            DataError: also when the object is not there, ends before the range does, or is no longer of that version.
        """

    @abstractmethod
    def write(self, name: str, content: IO[bytes] | Iterable[bytes]) -> Stored:
        """Write an object from a file or pieces; it appears whole or not at all, in place of one that is there."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove an object; it may be gone already."""

    def agrees(self, stored: Stored, md5: bytes) -> bool | None:
        """Return whether bytes with this MD5 are what the store says that an object holds; None: it does not say."""
        return None

    def encrypts(self, name: str) -> bool:
        """Return whether an object is encrypted in a way in which what the store says is no MD5; asks the store."""
        return False

    def path(self, name: str) -> str:
        """Return an object's whole address, for messages and indices."""
        return f"{self.address}/{name}"
