"""What a rank's writer does first where saves are kept on nodes: its part on this node, then a copy of it on another."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any, Collection, Mapping, Optional

from cordee.core.errors import CheckpointError
from cordee.systems.checkpoints.node.sums import file_with_sum
from cordee.systems.checkpoints.node.tiers.kept import KeptPart, KeptSaves, NodeTier
from cordee.systems.checkpoints.node.tiers.links import KeeperLinks
from cordee.systems.checkpoints.node.tiers.neighbour import Neighbour

_PIECE_BYTES = 4 << 20


class FirstTier:
    """Keeps one rank's saves on this node.

    Args:
        about: what the keeper says of the node: `node`, `control`, `tier`.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._tier = NodeTier(*about["tier"])
        self._saves = KeptSaves(Path(self._tier.folder))
        self._neighbour = Neighbour(KeeperLinks(Path(about["control"]), about["node"]), about["node"])
        self._last = ""

    def keep(
        self,
        save: str,
        rank: int,
        files: Mapping[str, memoryview],
        ends: tuple[Optional[list[Any]], Optional[dict[str, Any]]],
        needed: Collection[str],
    ) -> tuple[KeptPart, str]:
        """Keep a part; what is older goes, but for the save before it and those that are needed.

        Args:
            ends: `completion` and `place` of rank 0's request.

        Returns:
            the part, and why no other node has it; empty where one has.

        Raises:
            OSError, CheckpointError: it does not fit here.
        """
        if not self._last:  # another writer may have been here before
            before = [part.save for part in self._saves.parts() if part.rank == rank]
            self._last = max(before, default="")
        stay = [save, self._last, *needed]
        self._saves.forget(rank, stay)
        sizes = {name: len(data) for name, data in files.items()}
        partial = self._saves.begin(save, rank, sizes, self._tier.lacks)
        sums = {
            name: file_with_sum(
                os.path.join(partial, name), (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))
            )
            for name, data in files.items()
        }
        part = KeptPart(save, rank, sizes, sums, *ends)
        self._saves.finish(part)
        self._last = save
        return part, self._neighbour.copy(part, stay)

    def part(self, save: str, rank: int) -> KeptPart:
        """Return a part that lies here.

        Raises:
            CheckpointError: it does not.
        """
        found = [part for part in self._saves.parts() if (part.save, part.rank) == (save, rank)]
        if not found:
            raise CheckpointError("it is not on this node any more")
        return found[0]

    def mapped(self, part: KeptPart) -> dict[str, memoryview]:
        """Return the files of a part, which stay readable when they are removed.

        Raises:
            OSError: they are gone.
        """
        found = {}
        for name, size in part.sizes.items():
            with self._saves.file(part.save, part.rank, name).open("rb") as file:
                data = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) if size else b""
            found[name] = memoryview(data)
        return found
