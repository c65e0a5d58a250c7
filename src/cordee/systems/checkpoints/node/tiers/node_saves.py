"""The newest save that lies in full on the nodes of a run, brought to shared storage: what a restart begins from.

Each part comes from whichever node has it: the one whose rank it was, or the neighbour that has a copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Sequence

from cordee.core.errors import CordeeError
from cordee.systems.checkpoints.node.folder import read_manifest
from cordee.systems.checkpoints.node.manifest import Completion, complete
from cordee.systems.checkpoints.node.tiers.kept import KeptPart
from cordee.systems.checkpoints.node.tiers.links import KeeperLinks, asked
from cordee.systems.checkpoints.node.tiers.neighbour import parts_of
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace, discard
from cordee.wire.peers import PeerStream

_SUPERVISOR = "supervisor"
_COMES_BACK_S = 3.0
_AGAIN_S = 0.2
_SETTLE_S = 60.0
_LEAST_S, _LEAST_BYTES_PER_S = 60.0, 4e6
_AT_ONCE = 16
# How long keepers may take to start, and a store to answer.
_STARTS_S, _STORE_S = 20.0, 150.0


class NodeSave(NamedTuple):
    """A save on the nodes.

    Attributes:
        parts: of each rank, with the nodes that have it.
        completion: what it is.
        place: as rank 0 saw the folder on shared storage.
    """

    parts: dict[int, tuple[KeptPart, list[str]]]
    completion: Completion
    place: dict[str, Any]


class NodeSaves:
    """The saves on the nodes of a run.

    Args:
        control: the run's folder in which keepers say where they are.
        comes_back_s: for how long a node that does not answer is asked again.
    """

    def __init__(self, control: str, comes_back_s: float = _COMES_BACK_S) -> None:
        self._comes_back_s = comes_back_s
        self._links = KeeperLinks(Path(control), _SUPERVISOR)
        self._holding = False

    def found(self) -> list[NodeSave]:
        """Return those of which every rank's part is somewhere, the newest first."""
        return self._found(parts_of)

    def settled(self) -> list[NodeSave]:
        """Return the same once all ranks of the run have ended, and nobody writes for them any more."""
        return self._found(_parts_in_the_end)

    def _found(self, parts: Callable[[PeerStream], list[KeptPart]]) -> list[NodeSave]:
        def have(node: str) -> list[KeptPart]:
            with contextlib.closing(self._links.connect(node)) as stream:
                return parts(stream)

        said = self._each(have)
        self._holding = any(said.values())
        return self._whole(said)

    def bring(self, there: Sequence[NodeSave], newer_than: int) -> tuple[Optional[str], list[str]]:
        """Bring the newest one to shared storage, if its step is beyond one that lies there; then nodes keep none any more.

        Returns:
            its path there, None without any, and why others were not used.
        """
        problems: list[str] = []
        path = None
        for found in there:
            if found.completion.step <= newer_than:
                break
            try:
                path = self._persisted(found)
            except (OSError, CordeeError) as error:
                text = getattr(error, "text", "") or getattr(error, "strerror", "") or error
                problems.append(f"{found.completion.name} lies on the nodes and could not be written: {text}")
                continue
            break
        if self._holding and (path or not problems):
            self._each(lambda node: self._of_one({"do": "forget"}, [node], _LEAST_S))
        return path, problems

    def fetch(self, folder: str, run: str, newer_than: int) -> tuple[Optional[str], list[str]]:
        """Bring the newest save of the object store to shared storage, if its step is beyond one that lies there.

        Args:
            folder: of checkpoints.
            run: that saved it.

        Returns:
            its path there, None without any, and why others were not used.
        """
        problems: list[str] = []
        below: Optional[int] = None
        self._wait_for_one()
        while True:
            try:
                name, manifest = self._stored(below)
                if name is None or manifest["step"] <= newer_than:
                    return None, problems
                below = manifest["step"]
                return self._fetched(name, manifest, folder, run), problems
            except (OSError, CordeeError, LookupError, TypeError, ValueError) as error:
                text = getattr(error, "text", "") or getattr(error, "strerror", "") or error
                problems.append(
                    f"{f'step {below}' if below else 'what lies'} in the object store cannot be fetched: {text}"
                )
                if below is None:
                    return None, problems

    def catch_up(self, path: str) -> None:
        """Have all nodes together send a checkpoint of shared storage on to the object store where that has none of its step.

        Nobody waits for it: it goes on beside the next attempt.
        """
        try:
            names = sorted(read_manifest(path)["files"])
        except (OSError, ValueError):
            return
        nodes = list(self._links.all())

        def ask(at: int) -> None:
            request = {"do": "send", "path": path, "names": names[at :: len(nodes)], "completes": at == 0}
            with contextlib.suppress(OSError, CordeeError):
                self._of_one(request, nodes[at:] + nodes[:at], _LEAST_S)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(ask, range(len(nodes))))

    def _wait_for_one(self) -> None:
        """Wait until a node has a keeper: agents start theirs once they are there."""
        until = time.monotonic() + _STARTS_S
        while not self._links.all() and time.monotonic() < until:
            time.sleep(_AGAIN_S)

    def _stored(self, below: Optional[int]) -> tuple[Optional[str], dict[str, Any]]:
        """Return the newest save in the store, and its manifest.

        Raises:
            OSError, CordeeError, ValueError: no node can tell.
        """
        header, body = self._of_one({"do": "stored", "below": below}, list(self._links.all()), _STORE_S)
        return header["stored"], json.loads(body or b"{}")

    def _fetched(self, name: str, manifest: dict[str, Any], folder: str, run: str) -> str:
        """Have all nodes together write a save of the store to shared storage and complete it; return its path.

        Raises:
            OSError, CordeeError: a file cannot be had, or is damaged.
        """
        maker = {"run": run, "attempt": str(manifest["attempt"]), "epoch": manifest["epoch"]}
        place = CheckpointPlace.taken_over({**maker, "folder": folder, "token": "store", "saved": [], "goes_on": True})
        step, nodes = manifest["step"], list(self._links.all())
        what = Completion(f"step-{step:09d}", step, manifest["world_size"], manifest["torch"], sys.maxsize)

        def had(partial: str, at: int, file: str, size: int) -> tuple[str, int]:
            request = {"do": "fetch", "save": name, "name": file, "size": size, "folder": partial}
            wait_s = _STORE_S + size / _LEAST_BYTES_PER_S
            turn = at % len(nodes)
            found = int(self._of_one(request, nodes[turn:] + nodes[:turn], wait_s)[0]["sum"])
            if found != manifest["crc32"][file]:
                raise CordeeError(f"{file} of {name} is damaged in the object store")
            return file, found

        def filled(partial: str) -> dict[str, int]:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                files = sorted(manifest["files"].items())
                return dict(
                    job.result() for job in [pool.submit(had, partial, at, *one) for at, one in enumerate(files)]
                )

        return _completed(place, f"{what.name}.fetched", what, filled)

    def _of_one(
        self,
        request: dict[str, Any],
        nodes: Sequence[str],
        wait_s: float,
        fault: Callable[[dict[str, Any], str], str] = lambda header, node: "",
    ) -> tuple[dict[str, Any], bytearray]:
        """Ask one node after the other; return the first answer that will do.

        Args:
            fault: returns what is wrong with a node's answer.

        Raises:
            OSError, CordeeError: none can do it.
        """
        failure: Exception = CordeeError("no node has it")
        for node in nodes:
            try:
                with contextlib.closing(self._links.connect(node)) as stream:
                    header, body = asked(stream, request, wait_s)
                wrong = fault(header, node)
                if not wrong:
                    return header, body
                failure = CordeeError(wrong)
            except (OSError, CordeeError) as error:
                failure = error
        raise failure

    def _each(self, ask: Callable[[str], Any]) -> dict[str, Any]:
        """Ask all nodes at once; return what those say that are there."""
        nodes = list(self._links.all())
        until = time.monotonic() + self._comes_back_s

        def said(node: str) -> Any:
            while True:
                try:
                    return ask(node)
                except (OSError, CordeeError):
                    if time.monotonic() > until:
                        return None
                    time.sleep(_AGAIN_S)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return {node: answer for node, answer in zip(nodes, pool.map(said, nodes)) if answer is not None}

    @staticmethod
    def _whole(said: dict[str, list[KeptPart]]) -> list[NodeSave]:
        """Return the saves of which every rank's part is somewhere, the newest first."""
        saves: dict[str, dict[int, tuple[KeptPart, list[str]]]] = {}
        for node, parts in said.items():
            for part in parts:
                saves.setdefault(part.save, {}).setdefault(part.rank, (part, []))[1].append(node)
        found = []
        for by_rank in saves.values():
            first = by_rank[0][0] if 0 in by_rank else None
            if first is None or first.completion is None or first.place is None:
                continue
            what = Completion(*first.completion)
            if set(by_rank) == set(range(what.world_size)):
                found.append(NodeSave(by_rank, what, first.place))
        return sorted(found, key=lambda save: save.completion.step, reverse=True)

    def _persisted(self, save: NodeSave) -> str:
        """Have the nodes write a save to shared storage and complete it; return its path.

        Raises:
            OSError, CordeeError: a part could not be written, or is damaged wherever it lies.
        """

        def filled(partial: str) -> dict[str, int]:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                jobs = [pool.submit(self._write, *part, partial) for part in save.parts.values()]
                return {name: value for job in jobs for name, value in job.result().items()}

        place = CheckpointPlace.taken_over(save.place)
        return _completed(place, f"{save.completion.name}.gathered", save.completion, filled)

    def _write(self, part: KeptPart, nodes: list[str], partial: str) -> dict[str, int]:
        request = {"do": "persist", "save": part.save, "rank": part.rank, "folder": partial, "names": list(part.sizes)}
        wait_s = _LEAST_S + part.bytes / _LEAST_BYTES_PER_S

        def fault(header: dict[str, Any], node: str) -> str:
            return "" if header["sums"] == part.sums else f"rank {part.rank}'s part is damaged on {node}"

        return dict(self._of_one(request, nodes, wait_s, fault)[0]["sums"])


def _parts_in_the_end(stream: PeerStream) -> list[KeptPart]:
    began = time.monotonic()
    while asked(stream, {"do": "settle", "waited_s": time.monotonic() - began}, _SETTLE_S)[0]["writing"]:
        continue
    return parts_of(stream)


def _completed(place: CheckpointPlace, hidden: str, what: Completion, filled: Callable[[str], dict[str, int]]) -> str:
    """Make a hidden folder on shared storage, have it filled and complete it; return its path.

    Args:
        filled: writes the files into that folder for good and returns their sums.
    """
    partial = place.hidden(hidden)
    discard(partial)
    os.makedirs(partial)
    try:
        return complete(partial, what, filled(partial), place, durable=True)
    except BaseException:
        discard(partial)
        raise
