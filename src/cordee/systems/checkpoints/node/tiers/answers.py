"""What a node answers of what it keeps: to other nodes, and to the supervisor before an attempt."""

from __future__ import annotations

import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from cordee.core.errors import CordeeError
from cordee.systems.checkpoints.node.sums import file_with_sum
from cordee.systems.checkpoints.node.tiers.catch_up import StoreCatchUp
from cordee.systems.checkpoints.node.tiers.kept import KeptSaves, NodeTier
from cordee.systems.checkpoints.node.tiers.links import KeeperLinks
from cordee.systems.checkpoints.node.tiers.neighbour import fetch
from cordee.systems.checkpoints.node.tiers.object_saves import ObjectSaves

_PIECE_BYTES = 4 << 20
_PERSISTING = 4


class KeptAnswers:
    """Answers in JSON and bytes.

    Args:
        saves, tier: what is kept on this node, None where nothing is.
        links: to the other nodes.
        stored: the run's saves in an object store.
    """

    def __init__(
        self, saves: Optional[KeptSaves], tier: Optional[NodeTier], links: KeeperLinks, stored: ObjectSaves
    ) -> None:
        self._saves, self._tier, self._links, self._stored = saves, tier, links, stored
        self._catch_up = StoreCatchUp(stored)

    def answer(self, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Answer one request.

        Raises:
            OSError, CordeeError, LookupError, ValueError, TypeError: it cannot be done.
        """
        do, saves = asked["do"], self._saves
        if do == "stored":
            found = self._stored.newest(asked["below"]) if self._stored.address else None
            return {"stored": found and found.name}, json.dumps(found.manifest).encode() if found else b""
        if do == "fetch":
            return {"sum": self._stored.fetch(asked["save"], asked["name"], asked["size"], asked["folder"])}, b""
        if do == "send":
            self._catch_up.begin(asked["path"], asked["names"], completes=asked["completes"])
            return {}, b""
        if saves is None:
            return ({"parts": []} if do == "have" else {}), b""
        if do == "have":
            return {"parts": [list(part) for part in saves.parts()]}, b""
        if do == "read":
            with saves.file(asked["save"], asked["rank"], asked["name"]).open("rb") as file:
                return {}, os.pread(file.fileno(), asked["length"], asked["offset"])
        if do == "take":
            assert self._tier is not None
            saves.forget(asked["rank"], asked["keep"])
            with contextlib.closing(self._links.connect(asked["node"])) as stream:
                fetch(saves, stream, asked["save"], asked["rank"], self._tier.lacks)
            return {}, b""
        if do == "persist":
            return {"sums": self._persisted(saves, asked)}, b""
        if do == "forget":
            saves.clear()
            return {}, b""
        raise CordeeError("a keeper of checkpoints does not know this", given=do)

    @staticmethod
    def _persisted(saves: KeptSaves, asked: dict[str, Any]) -> dict[str, int]:
        """Copy files of a part to shared storage, for good; return their sums."""

        def copy(name: str) -> int:
            with saves.file(asked["save"], asked["rank"], name).open("rb") as file:
                pieces = iter(lambda: file.read(_PIECE_BYTES), b"")
                return file_with_sum(os.path.join(asked["folder"], os.path.basename(name)), pieces, durable=True)

        with ThreadPoolExecutor(_PERSISTING) as pool:
            return dict(zip(asked["names"], pool.map(copy, asked["names"])))
