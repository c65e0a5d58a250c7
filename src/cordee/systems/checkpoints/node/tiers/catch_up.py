"""Checkpoints of shared storage that a node sends on to the object store, where the ranks that were sending them are gone."""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from typing import Iterator, Sequence

from cordee.core.errors import CordeeError
from cordee.systems.checkpoints.node.disk_writes import go_last
from cordee.systems.checkpoints.node.folder import MANIFEST, parsed_manifest
from cordee.systems.checkpoints.node.manifest import Completion
from cordee.systems.checkpoints.node.tiers.object_saves import ObjectSaves, step_of
from cordee.systems.checkpoints.node.write_rate import LEAST_PER_S

_PIECE_BYTES = 4 << 20


class StoreCatchUp:
    """What this node sends so, beside the next attempt.

    Args:
        saves: of the run, in the store.
    """

    def __init__(self, saves: ObjectSaves) -> None:
        self._saves = saves
        self._under_way: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def begin(self, path: str, names: Sequence[str], *, completes: bool) -> None:
        """Send files of a checkpoint, unless they are on their way or the store has one of that step; returns at once.

        Args:
            path: of the checkpoint on shared storage.
            completes: whether this node waits for all files, of other nodes too, and completes the save.
        """
        asked = {(path, name) for name in names} | ({(path, MANIFEST)} if completes else set())
        with self._lock:
            new = asked - self._under_way
            self._under_way |= new
        if new:
            threading.Thread(target=self._send, args=(path, new), daemon=True).start()

    def _send(self, path: str, asked: set[tuple[str, str]]) -> None:
        go_last()
        try:
            with open(os.path.join(path, MANIFEST), "rb") as file:
                text = file.read()
            manifest = parsed_manifest(text)
            step = int(manifest["step"])
            if any(MANIFEST in there and step_of(save) >= step for save, there in self._saves.listed().items()):
                return
            save = f"step-{step:09d}.{zlib.crc32(text):08x}"
            names = sorted(name for _, name in asked if name != MANIFEST)
            self._saves.put(save, {name: os.path.join(path, name) for name in names}, _slowly)
            if (path, MANIFEST) in asked:
                what = Completion(os.path.basename(path), step, manifest["world_size"], manifest["torch"], sys.maxsize)
                self._saves.complete(save, text, what, lambda: False)
        except (OSError, CordeeError, LookupError, TypeError, ValueError) as error:
            print(f"{path} does not go on to the object store: {getattr(error, 'text', '') or error}", flush=True)
        finally:
            with self._lock:
                self._under_way -= asked


def _slowly(path: str) -> Iterator[bytes]:
    """Yield a file in pieces, as slowly as a save that has time."""
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
            time.sleep(len(piece) / LEAST_PER_S)
