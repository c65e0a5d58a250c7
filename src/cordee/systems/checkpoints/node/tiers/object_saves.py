"""The saves of a run in an object store, beyond shared storage: each is complete once its manifest is there, which comes last.

```
<address>/<run>/<save>/<file>            whole or absent, as stores have objects; a save is `step-<N>.<what no other save is called>`
<address>/<run>/<save>/cordee.json
```
"""

from __future__ import annotations

import os
import time
from functools import cached_property
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, TypeVar, Union

from cordee.core.errors import CheckpointError
from cordee.runs.checkpoint import Checkpoint
from cordee.systems.checkpoints.node.folder import MANIFEST, parsed_manifest
from cordee.systems.checkpoints.node.manifest import Completion
from cordee.systems.checkpoints.node.sums import file_with_sum
from cordee.systems.checkpoints.node.training_folder import staying
from cordee.wire.stores import open_store

_Content = TypeVar("_Content")

PIECE_BYTES = 16 << 20
_LOOK_S = 1.0
# How long others may bring nothing before the one that completes a save gives it up.
_NOTHING_COMES_S = 180.0


class ObjectSave(NamedTuple):
    """A complete save: what it is called in the store, and its manifest."""

    name: str
    manifest: dict[str, Any]


class ObjectSaves:
    """The saves of one run in a store.

    Args:
        address: `s3://bucket/prefix/RUN`, or a folder.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    @cached_property
    def _store(self) -> Any:
        return open_store(self.address)

    @staticmethod
    def name_of(partial: str) -> str:
        """Return what a save is called, by its hidden folder on shared storage."""
        step, _, rest = os.path.basename(partial).lstrip(".").partition(".")
        return f"{step}.{rest.rpartition('.')[2]}"

    def put(
        self, save: str, files: Mapping[str, _Content], paced: Callable[[_Content], Iterable[Union[bytes, memoryview]]]
    ) -> None:
        """Write the files of one rank.

        Args:
            files: what `paced` takes, by name.
            paced: gives a file in pieces, each when it may be sent; what it raises ends this.

        Raises:
            DataError: the store refuses, or did not answer in time.
        """
        for name, data in files.items():
            self._store.write(f"{save}/{name}", (bytes(piece) for piece in paced(data)))

    def complete(self, save: str, manifest: bytes, what: Completion, gone: Callable[[], bool]) -> None:
        """Wait until all ranks' files are there, write the manifest and remove what is too old.

        Args:
            gone: whether nobody waits for this any more.

        Raises:
            CheckpointError: other ranks' files did not come.
            DataError: the store refuses, or did not answer in time.
        """
        wanted = parsed_manifest(manifest)["files"]
        missing, seen_at = len(wanted), time.monotonic()
        while True:
            there = self.listed(save).get(save, {})
            left = sum(1 for name, size in wanted.items() if there.get(name) != size)
            if not left:
                break
            now = time.monotonic()
            missing, seen_at = left, seen_at if left == missing else now
            if gone() or now - seen_at > _NOTHING_COMES_S:
                raise CheckpointError(f"{left} of {len(wanted)} files did not come into {self.address}/{save}")
            time.sleep(_LOOK_S)
        self._store.write(f"{save}/{MANIFEST}", [manifest])
        self._remove_old(save, what)

    def _remove_old(self, newest: str, what: Completion) -> None:
        """Remove older saves but for those that stay, and what was never completed; manifests first, so that none is there by half."""
        saves = self.listed()
        steps = {save: step_of(save) for save in saves}
        whole = [save for save, names in saves.items() if MANIFEST in names and save != newest]
        older = sorted((save for save in whole if steps[save] != what.step), key=lambda save: steps[save])
        found = [Checkpoint(save, save, steps[save], 0) for save in [*older, newest]]
        stay = staying(found, what.keep, what.milestones)
        for save, names in saves.items():
            if save not in stay and steps[save] <= what.step:
                for name in sorted(names, key=lambda name: name != MANIFEST):
                    self._store.delete(f"{save}/{name}")

    def listed(self, save: str = "") -> dict[str, dict[str, int]]:
        """Return what is there: bytes of files by name, by save; those with a manifest are complete.

        Args:
            save: this one alone.

        Raises:
            DataError: the store refuses, or did not answer in time.
        """
        found: dict[str, dict[str, int]] = {}
        for one in self._store.list(save):
            name, _, file = one.name.partition("/")
            found.setdefault(name, {})[file] = one.bytes
        return found

    def newest(self, below: Optional[int] = None) -> Optional[ObjectSave]:
        """Return the newest complete save, None without one.

        Args:
            below: of a smaller step than this.

        Raises:
            DataError: the store refuses, or did not answer in time.
            ValueError: its manifest is damaged.
        """
        whole = [save for save, files in self.listed().items() if MANIFEST in files]
        saves = [save for save in whole if below is None or step_of(save) < below]
        if not saves:
            return None
        save = max(saves, key=step_of)
        return ObjectSave(save, parsed_manifest(self._store.read(f"{save}/{MANIFEST}")))

    def fetch(self, save: str, name: str, size: int, folder: str) -> int:
        """Write a file of a save into a folder, for good; return its CRC-32.

        Raises:
            DataError: the store refuses, or did not answer in time.
            OSError: it cannot be written.
        """
        pieces = (
            self._store.read(f"{save}/{name}", at, min(PIECE_BYTES, size - at)) for at in range(0, size, PIECE_BYTES)
        )
        return file_with_sum(os.path.join(folder, os.path.basename(name)), pieces, durable=True)


def address_of(tiers: Sequence[str], run: str) -> str:
    """Return where a run's saves lie in an object store; empty without one."""
    return f"{tiers[-1].rstrip('/')}/{run}" if "://" in tiers[-1] else ""


def step_of(save: str) -> int:
    """Return the step of a save by its name; -1: it is none of ours."""
    number = save.partition(".")[0].rpartition("-")[2]
    return int(number) if save.startswith("step-") and number.isdigit() else -1
