"""A copy of a rank's part of a save on another node: that node fetches it."""

from __future__ import annotations

from typing import Any, Callable, Optional

from cordee.core.errors import CordeeError
from cordee.systems.checkpoints.node.sums import file_with_sum
from cordee.systems.checkpoints.node.tiers.kept import KeptPart, KeptSaves
from cordee.systems.checkpoints.node.tiers.links import KeeperLinks, asked
from cordee.wire.peers import PeerStream

_PIECE_BYTES = 8 << 20
_LEAST_S, _LEAST_BYTES_PER_S = 30.0, 16e6


class Neighbour:
    """The node that has copies of what this one keeps: the next in turn that takes them.

    Args:
        links: to the keepers of all nodes, as this one.
        node: this one.
    """

    def __init__(self, links: KeeperLinks, node: str) -> None:
        self._links, self._node = links, node
        self._stream: Optional[PeerStream] = None
        self._name = ""

    def copy(self, part: KeptPart, keep: list[str]) -> str:
        """Have a part copied, and older ones forgotten; return why no other node has it, empty where one has, or there is none.

        Args:
            keep: the saves of which the neighbour's copies stay.
        """
        request = {"do": "take", "save": part.save, "rank": part.rank, "node": self._node, "keep": keep}
        wait_s = _LEAST_S + part.bytes / _LEAST_BYTES_PER_S
        why = ""
        for name in dict.fromkeys([self._name, *self._links.others()]):
            if not name:
                continue
            try:
                if self._stream is None or name != self._name:
                    self._close()
                    self._stream, self._name = self._links.connect(name), name
                asked(self._stream, request, wait_s)
                return ""
            except (OSError, CordeeError) as error:
                why = f"{name}: {getattr(error, 'text', '') or error}"
                self._close()
        return why

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._name = None, ""


def fetch(saves: KeptSaves, stream: PeerStream, save: str, rank: int, room: Callable[[int], str]) -> None:
    """Fetch a part from the node that has it.

    Args:
        stream: to that node.
        room: returns why so many bytes do not fit here, empty where they do.

    Raises:
        OSError, CordeeError: it did not come in full, or does not fit.
    """
    found = [part for part in parts_of(stream) if (part.save, part.rank) == (save, rank)]
    if not found:
        raise CordeeError("it is not there any more", given=save)
    (part,) = found
    partial = saves.begin(save, rank, part.sizes, room)
    for name, size in part.sizes.items():

        def pieces(name: str = name, size: int = size) -> Any:
            request = {"do": "read", "save": save, "rank": rank, "name": name}
            for begin in range(0, size, _PIECE_BYTES):
                length = min(_PIECE_BYTES, size - begin)
                yield asked(stream, {**request, "offset": begin, "length": length}, _LEAST_S)[1]

        if file_with_sum(str(partial / name), pieces()) != part.sums[name]:
            raise CordeeError("it is damaged", given=f"{save}: {name}")
    saves.finish(part)


def parts_of(stream: PeerStream) -> list[KeptPart]:
    """Return what a node has.

    Raises:
        OSError, CordeeError: it does not say.
    """
    return [KeptPart(*one) for one in asked(stream, {"do": "have"}, _LEAST_S)[0]["parts"]]
