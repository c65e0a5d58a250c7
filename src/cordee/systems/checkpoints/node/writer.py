"""The process that writes a rank's part of a checkpoint beside the training, and, for rank 0, completes it.

It reads one request a line and answers in lines of JSON. The files come from memory that the rank shares with it. Where
its rank dies it finishes what it has begun, as fast as it can.

A writer that the node's keeper has started lives on where its rank is killed, and ends with the keeper. Where saves are kept on nodes, a part is first put
on this node and copied to another (`written`), and then, beside what comes next, goes to shared storage (`drained`), and from the node to an object
store (`stored`); a rank that dies leaves the former to whoever starts the next ranks, and the latter undone.

| asked | answered |
|---|---|
| a `WriteRequest` | `written`, and `alone` if no other node has a copy; `drained`; of rank 0 also `complete`; `stored`; `failed`, `undrained`, `unstored` |
| the same, `kept` | the same but for `written` and `alone`: another writer was killed on the way |
| `settle` | `settled`, once the newest save is on shared storage, and in the store |
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Iterator, Mapping, NamedTuple, Optional

from cordee.core.errors import CheckpointError
from cordee.machine.processes.parent import die_with_parent
from cordee.systems.checkpoints.node.disk_writes import PIECE_BYTES, go_last, put, write_out
from cordee.systems.checkpoints.node.folder import find_checkpoints, read_manifest
from cordee.systems.checkpoints.node.manifest import Completion, complete
from cordee.systems.checkpoints.node.snapshot import ABANDON, GO_ON, heard
from cordee.systems.checkpoints.node.sums import WORDS, crc32_of
from cordee.systems.checkpoints.node.tiers.first_tier import FirstTier
from cordee.systems.checkpoints.node.tiers.kept import KeptPart
from cordee.systems.checkpoints.node.tiers.store_queue import StorePart, StoreQueue
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace, discard
from cordee.systems.checkpoints.node.write_rate import Pace, WriteRate

_CHUNK_BYTES = 4 << 20
_LOOK_S = 0.1
SETTLE = "settle"
# How long rank 0's waits for those of other ranks once nobody has time any more.
_OTHERS_S = 60.0
# A save waits for it, and the training for that.
_BEGIN_S = 5.0


class WriteRequest(NamedTuple):
    """One rank's part of a save.

    Attributes:
        partial: the hidden folder.
        size: of the shared memory, bytes.
        files: (offset there, bytes) by name.
        own: names of the files that the rank has written into the folder itself.
        completion: for rank 0 alone: what completes it; `place`: `CheckpointPlace.handed_over`.
        drains: whether it goes to shared storage at once; else it stays on nodes until another does, or `settle`.
        stores: whether it goes on to the object store.
        kept: whether this rank's part lies on its node already; one that only `stores` is on shared storage, too.
    """

    rank: int
    partial: str
    size: int
    files: dict[str, tuple[int, int]]
    own: list[str]
    interval_s: Optional[float]
    pace: Pace
    completion: Optional[list[Any]] = None
    place: Optional[dict[str, Any]] = None
    drains: bool = True
    stores: bool = False
    kept: bool = False


class KeptRequest(NamedTuple):
    """A save of which this rank's part lies on its node."""

    request: WriteRequest
    part: KeptPart


class AbandonedError(Exception):
    """This save is not wanted any more: another rank's part has failed."""


class Writer:
    """Writes what it is asked for.

    Args:
        memory: descriptor of the shared memory.
        about: what the keeper that has started it says of the node; None: its rank has started it.
    """

    def __init__(self, memory: int, about: Optional[Mapping[str, Any]] = None) -> None:
        self._descriptor = memory
        self._map: Optional[mmap.mmap] = None
        self._parent = os.getppid()
        self._kept = about is not None
        if about is not None:
            die_with_parent(about["keeper"])  # the next keeper could not wait for this process
        self._keeping = FirstTier(about) if about is not None and about["tier"] else None
        store = about["store"] if about is not None else ""
        self._store = StoreQueue(store, _answer, lambda: self._broken_off) if store else None
        self._drain: Optional[threading.Thread] = None
        self._at_work: Optional[KeptRequest] = None
        self._waiting: Optional[KeptRequest] = None
        self._told = self._broken_off = False
        # What is in a hurry or late is done by another: a thread cannot have its priority back.
        self._last_in_turn = ThreadPoolExecutor(1, initializer=go_last)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._hurry)

    def _hurry(self, *_: Any) -> None:
        self._told = True

    @property
    def hurried(self) -> bool:
        """Whether there is no time to go slowly: it was said, by the rank or a signal, or the rank is gone."""
        return self._told or self._word() != GO_ON or self._orphaned()

    def _orphaned(self) -> bool:
        if not self._kept:
            return os.getppid() != self._parent
        gone = select.poll()
        gone.register(0, 0)
        return bool(gone.poll(0))

    def serve(self) -> None:
        """Answer requests until the rank sends an empty line, or is gone."""
        for line in sys.stdin.buffer:
            if not line.strip():
                break
            asked = json.loads(line)
            if asked == SETTLE:
                self._settle()
                continue
            self._told = False
            request = WriteRequest(*asked)
            try:
                if request.kept:
                    self._take_up(request)
                elif not self._kept_on_node(request):
                    if not request.drains:
                        self._open(request, _BEGIN_S)  # others may have kept theirs on their nodes
                    self._persist(request, self._files(request), "written")
            except Exception as error:  # the answer must come: a rank may wait for it
                self._failed(request, _words(error, request.partial), _end_of(request) if request.kept else "failed")
        else:
            self._broken_off = True  # the rank was killed: whoever starts the next ranks gathers what lies on nodes
        if self._drain is not None:
            self._drain.join()

    def _files(self, request: WriteRequest) -> dict[str, memoryview]:
        if self._map is None or len(self._map) != request.size:
            self._map = mmap.mmap(self._descriptor, request.size, prot=mmap.PROT_READ)
        whole = memoryview(self._map)
        return {name: whole[offset : offset + size] for name, (offset, size) in request.files.items()}

    def _kept_on_node(self, request: WriteRequest) -> bool:
        """Keep a rank's part on this node, if it may be, and have it go on to shared storage beside what comes next."""
        if self._keeping is None:
            return False
        files, save = self._files(request), os.path.basename(request.partial).lstrip(".")
        needed = [self._at_work.part.save] if self._at_work is not None else []
        try:
            if request.own:
                raise CheckpointError("host memory did not suffice for a copy")
            part, alone = self._keeping.keep(save, request.rank, files, (request.completion, request.place), needed)
        except (OSError, CheckpointError) as error:
            why = _words(error, request.partial)
            if not request.drains:
                discard(request.partial)
                raise AbandonedError(f"it could not be kept on this node: {why}") from error
            _answer({"alone": f"this node has none: {why}", "unstored": "it is not kept on this node"})
            return False
        kept = KeptRequest(request, part)
        _answer({"written": part.bytes, **({"alone": alone} if alone else {})})
        if request.drains:
            self._begin_drain(kept)
        else:
            self._waiting = kept
        return True

    def _take_up(self, request: WriteRequest) -> None:
        """Go on with what another writer had on its way.

        Raises:
            OSError, CheckpointError: the part is not on this node any more.
        """
        assert self._keeping is not None
        self._files(request)  # what the rank says is read there
        kept = KeptRequest(request, self._keeping.part(os.path.basename(request.partial).lstrip("."), request.rank))
        if request.drains or request.stores:
            self._begin_drain(kept)
        else:
            self._waiting = kept

    def _begin_drain(self, kept: KeptRequest) -> None:
        if self._drain is not None:
            self._drain.join()
        self._waiting, self._at_work = None, kept
        assert self._keeping is not None
        files = self._keeping.mapped(kept.part)

        def drain() -> None:
            try:
                path = _there(kept) if kept.request.kept else ""
                if not path and _end_of(kept.request) == "undrained":
                    self._open(kept.request)
                    path = self._persist(kept.request, files, "drained")
                if self._store is not None:
                    what = Completion(*kept.request.completion) if kept.request.completion else None
                    part = StorePart(kept.request.partial, files, partial(self._paced, kept.request), completion=what)
                    self._store.add(part, path, now=kept.request.stores)
            except Exception as error:  # the answer must come: a rank may wait for it
                self._failed(kept.request, _words(error, kept.request.partial), _end_of(kept.request))
                _answer({"unstored": "it is not on shared storage"})
            self._at_work = None

        self._drain = threading.Thread(target=drain)
        self._drain.start()

    def _settle(self) -> None:
        """Have the newest save on shared storage, and say when it is there, or cannot be."""
        if self._waiting is not None:
            try:
                self._begin_drain(self._waiting)
            except OSError as error:
                _answer({"undrained": _words(error, "")})
        if self._drain is not None:
            self._drain.join()
        if self._store is not None:
            self._store.settle()
        _answer({"settled": True})

    def _open(self, request: WriteRequest, most_s: float = _OTHERS_S) -> None:
        """Have the hidden folder there, which the writer of rank 0 makes where rank 0 did not have to."""
        until = time.monotonic() + most_s
        if request.completion is not None and not request.drains:
            os.makedirs(request.partial, exist_ok=True)
        while not os.path.isdir(request.partial):
            if self._broken_off or time.monotonic() > until:
                raise AbandonedError("rank 0 did not begin with it")
            time.sleep(_LOOK_S)

    def _persist(self, request: WriteRequest, files: Mapping[str, memoryview], word: str) -> str:
        """Write a rank's files to shared storage and, for rank 0, complete the checkpoint; returns its path then."""
        written = self._written(request, files)
        _answer({word: written, "drained": written})
        path = self._completed(request) if request.completion is not None else ""
        if path:
            _answer({"complete": path})
        return path

    def _failed(self, request: WriteRequest, why: str, word: str) -> None:
        """Say it to the rank, and to the one that waits for this rank's part; rank 0 takes the folder away."""
        if request.completion is not None:
            discard(request.partial)
        elif word != "unstored":
            with contextlib.suppress(OSError):
                leave_word(request.partial, request.rank, {"failed": f"rank {request.rank}: {why}"})
        _answer({word: why})

    def _written(self, request: WriteRequest, files: Mapping[str, memoryview]) -> int:
        """Write a rank's files, leave word of their sums, and return their bytes."""
        rate = WriteRate(sum(map(len, files.values())), request.interval_s, request.pace, time.monotonic())
        sums: dict[str, int] = {}
        done = 0
        try:
            for name, data in files.items():
                sums[name] = self._write(os.path.join(request.partial, name), data, rate, done)
                done += len(data)
        except OSError:
            for name in files:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(request.partial, name))
            raise
        for name in request.own:
            path = os.path.join(request.partial, name)
            sums[name] = crc32_of(path)
            done += os.stat(path).st_size
        leave_word(request.partial, request.rank, {"sums": sums})
        return done

    def _write(self, path: str, data: memoryview, rate: WriteRate, done: int) -> int:
        """Write one file at the rate of this save and return its CRC-32; it is on the disk then."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            value, begun = 0, 0
            for begin in range(0, len(data), _CHUNK_BYTES):
                chunk = data[begin : begin + _CHUNK_BYTES]
                end = begin + len(chunk)
                finish = time.monotonic() + rate.pause_s(len(chunk))
                if self.hurried or rate.per_s == float("inf") or rate.is_late(done + begin, time.monotonic()):
                    value = put(descriptor, chunk, value)
                else:
                    value = self._last_in_turn.submit(put, descriptor, chunk, value).result()
                paced = self._passed(finish, rate, done + end)
                if paced and end - begun >= PIECE_BYTES:
                    write_out(descriptor, begun, end)
                    begun = end
            os.fsync(descriptor)
            return value
        finally:
            os.close(descriptor)

    def _passed(self, finish: float, rate: WriteRate, done: int) -> bool:
        """Wait until `finish` unless there is no time for it; returns whether it went slowly.

        Raises:
            AbandonedError: the save is not wanted any more.
        """
        assert self._map is not None
        while True:
            word, limit_s, recent_s = heard(self._map)
            if word == ABANDON or self._broken_off:
                raise AbandonedError("another rank's part could not be written")
            now = time.monotonic()
            rate.look(done, limit_s, recent_s, now)
            if self.hurried or rate.per_s == float("inf"):
                return False
            if now >= finish:
                return True
            time.sleep(min(_LOOK_S, finish - now))

    def _paced(self, request: WriteRequest, data: memoryview) -> Iterator[memoryview]:
        """Give a file in pieces at the rate of its save, for what takes them.

        Raises:
            AbandonedError: the rank is gone.
        """
        rate = WriteRate(len(data), request.interval_s, request.pace, time.monotonic())
        for begin in range(0, len(data), _CHUNK_BYTES):
            chunk = data[begin : begin + _CHUNK_BYTES]
            yield chunk
            self._passed(time.monotonic() + rate.pause_s(len(chunk)), rate, begin + len(chunk))

    def _word(self) -> int:
        return heard(self._map)[0] if self._map is not None else GO_ON

    def _completed(self, request: WriteRequest) -> str:
        """Wait for the other ranks' parts and complete the checkpoint; returns its path."""
        assert request.completion is not None
        assert request.place is not None
        what = Completion(*request.completion)
        try:
            sums = read_manifest(request.partial)["crc32"]  # as a writer that was killed left it
        except (OSError, ValueError):
            sums = self._sums_of_all(request, what.world_size)
        return complete(request.partial, what, sums, CheckpointPlace.taken_over(request.place), durable=True)

    def _sums_of_all(self, request: WriteRequest, world_size: int) -> dict[str, int]:
        """Wait for the parts of all ranks; return the sums of their files.

        Raises:
            AbandonedError: one could not be written, or did not come in time.
        """
        sums: dict[str, int] = {}
        heard_of: set[str] = set()
        until, pause = None, 0.005
        while True:
            for path in _words_there(request.partial) - heard_of:
                with open(path, encoding="utf-8") as file:
                    word = json.load(file)
                if "failed" in word:
                    raise AbandonedError(word["failed"])
                sums.update(word["sums"])
                heard_of.add(path)
            missing = world_size - len(heard_of)
            if not missing:
                return sums
            if self._word() == ABANDON or self._broken_off:
                raise AbandonedError("another rank's part could not be written")
            now = time.monotonic()
            until = until or (now + _OTHERS_S if self.hurried else None)
            if until is not None and now > until:
                raise AbandonedError(f"{missing} of {world_size} ranks did not write their parts in time")
            time.sleep(pause)
            pause = min(1.0, 2 * pause)


def _there(kept: KeptRequest) -> str:
    """Return where a save is complete on shared storage, as far as the rank has not heard it; empty where it is not."""
    folder, hidden = os.path.split(kept.request.partial)
    for found in find_checkpoints(folder, f"{hidden.lstrip('.').partition('.')[0]}*"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            if kept.part.sums.items() <= read_manifest(found.path)["crc32"].items():
                if kept.request.drains:
                    _answer({"drained": kept.part.bytes, "complete": found.path})
                return found.path
    return ""


def leave_word(partial: str, rank: int, document: dict[str, Any]) -> None:
    """Tell the one that completes the checkpoint what became of a rank's part.

    Raises:
        OSError: the hidden folder is gone, or cannot be written to.
    """
    word = os.path.join(partial, f"{WORDS}{rank}")
    with open(f"{word}.tmp", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.rename(f"{word}.tmp", word)


def _end_of(request: WriteRequest) -> str:
    """Return what a part fails at once it lies on its node."""
    return "unstored" if request.stores and not request.drains else "undrained"


def _words_there(partial: str) -> set[str]:
    names = [name for name in os.listdir(partial) if name.startswith(WORDS) and not name.endswith(".tmp")]
    return {os.path.join(partial, name) for name in names}


def _words(error: Exception, partial: str) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename or partial}"
    return str(error) if isinstance(error, (AbandonedError, CheckpointError)) else f"{type(error).__name__}: {error}"


def _answer(document: dict[str, Any]) -> None:
    """Tell the rank, if it is there to hear it."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(document).encode() + b"\n")


def main() -> None:
    """Serve a rank: the arguments are the descriptor of the memory that it shares, and what a keeper says of the node."""
    Writer(int(sys.argv[1]), *map(json.loads, sys.argv[2:])).serve()


if __name__ == "__main__":
    main()
