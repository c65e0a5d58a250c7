"""One rank that is profiled, whatever the tool."""

from __future__ import annotations

import zlib
from typing import Any, BinaryIO, Iterator

from cordee.systems.explain.node.parts import PART_BYTES

WAITING, TRACING, READY, FAILED = "waiting", "tracing", "ready", "failed"


class RankProfile:
    """See the module.

    Args:
        about: what the agent knows of the process.
        order: what is wanted, as `ProfileRanks` has it.

    Attributes:
        state: one of the words above; text: more of it, or why it has failed.
        name: of the file that it becomes.
        known: more that is told of it.
    """

    name = ""

    def __init__(self, about: dict[str, Any], order: dict[str, Any]) -> None:
        self.rank, self.pid = int(about["rank"]), int(about["pid"])
        self.state, self.text = WAITING, ""
        self.known: dict[str, Any] = {}

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return self.state in (READY, FAILED)

    def look(self) -> None:
        """Look how far it is; called some times a second until it is over."""
        raise NotImplementedError

    def content(self) -> Iterator[bytes]:
        """Yield what was recorded, compressed, once it is `READY`.

        Raises:
            OSError: it cannot be read.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Leave nothing behind: what was recorded has been read, or is wanted no more."""

    def fail(self, why: str) -> None:
        """There will be nothing of this rank."""
        self.state, self.text = FAILED, why


def compressed(file: BinaryIO, begin: bytes = b"") -> Iterator[bytes]:
    """Yield `begin` and what follows in a file as gzip does."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    yield packer.compress(begin)
    for content in iter(lambda: file.read(PART_BYTES), b""):
        yield packer.compress(content)
    yield packer.flush()
