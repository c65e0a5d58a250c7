"""What a rank's writer does last: its part of a save goes from the node to the object store, beside all else."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional

from cordee.core.errors import CordeeError
from cordee.systems.checkpoints.node.folder import MANIFEST
from cordee.systems.checkpoints.node.manifest import Completion
from cordee.systems.checkpoints.node.tiers.object_saves import ObjectSaves


class StorePart(NamedTuple):
    """One rank's part of a save that is complete on shared storage, or will be.

    Attributes:
        files: on the node; what holds them keeps their bytes, also when they were removed there.
        manifest: of rank 0's part alone, with what completes the save.
    """

    partial: str
    files: Mapping[str, memoryview]
    paced: Callable[[memoryview], Iterable[memoryview]]
    manifest: bytes = b""
    completion: Optional[Completion] = None


class StoreQueue:
    """Parts on their way, one after the other; of those that were not sent the last one is kept until `settle`.

    Args:
        address: of the run's saves there.
        answer: tells the rank what has become of a part.
        gone: whether the rank is gone, so that nobody waits.
    """

    def __init__(self, address: str, answer: Callable[[dict[str, Any]], None], gone: Callable[[], bool]) -> None:
        self._saves, self._answer, self._gone = ObjectSaves(address), answer, gone
        self._queue: queue.Queue[StorePart] = queue.Queue()
        self._kept: Optional[StorePart] = None
        # A rank that is gone waits for nothing, and nor does the end of this process.
        threading.Thread(target=self._work, daemon=True).start()

    def add(self, part: StorePart, path: str, *, now: bool) -> None:
        """Take a part.

        Args:
            path: of the checkpoint on shared storage, for rank 0's.
            now: whether it goes to the store now; else only if no other does.
        """
        if path:
            with open(os.path.join(path, MANIFEST), "rb") as file:
                part = part._replace(manifest=file.read())
        self._kept = part
        if now:
            self._send()

    def settle(self) -> None:
        """Send the last one, too, and wait for all."""
        if self._kept is not None:
            self._send()
        self._queue.join()

    def _send(self) -> None:
        assert self._kept is not None
        self._queue.put(self._kept)
        self._kept = None

    def _work(self) -> None:
        while True:
            part = self._queue.get()
            save = ObjectSaves.name_of(part.partial)
            try:
                self._saves.put(save, part.files, part.paced)
                if part.completion is not None:
                    self._saves.complete(save, part.manifest, part.completion, self._gone)
                self._answer({"stored": save})
            except Exception as error:  # the rank must hear of it
                why = (
                    f"{error.text} ({error.given})"
                    if isinstance(error, CordeeError)
                    else f"{type(error).__name__}: {error}"
                )
                self._answer({"unstored": why})
            del part
            self._queue.task_done()
