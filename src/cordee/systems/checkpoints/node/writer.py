"""The process that writes a rank's part of a checkpoint beside the training, and, for rank 0, completes it.

It reads one request a line and answers in lines of JSON. The files come from memory that the rank shares with it. Where
its rank dies it finishes what it has begun, as fast as it can.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import sys
import time
import zlib
from typing import Any, NamedTuple, Optional

from cordee.systems.checkpoints.node.manifest import Completion, complete
from cordee.systems.checkpoints.node.snapshot import ABANDON, GO_ON, heard
from cordee.systems.checkpoints.node.sums import WORDS, crc32_of
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace, discard
from cordee.systems.checkpoints.node.write_rate import Pace, WriteRate

_CHUNK_BYTES = 4 << 20
_PIECE_BYTES = 16 << 20
_LOOK_S = 0.1
# How long rank 0's waits for those of other ranks once nobody has time any more.
_OTHERS_S = 60.0


class WriteRequest(NamedTuple):
    """One rank's part of a save.

    Attributes:
        partial: the hidden folder.
        size: of the shared memory, bytes.
        files: (offset there, bytes) by name.
        own: names of the files that the rank has written into the folder itself.
        completion: for rank 0 alone: what completes it; `place`: `CheckpointPlace.handed_over`.
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


class AbandonedError(Exception):
    """This save is not wanted any more: another rank's part has failed."""


class Writer:
    """Writes what it is asked for.

    Args:
        memory: descriptor of the shared memory.
    """

    def __init__(self, memory: int) -> None:
        self._descriptor = memory
        self._map: Optional[mmap.mmap] = None
        self._parent = os.getppid()
        self._told = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._hurry)

    def _hurry(self, *_: Any) -> None:
        self._told = True

    @property
    def hurried(self) -> bool:
        """Whether there is no time to go slowly: it was said, by the rank or a signal, or the rank is gone."""
        return self._told or self._word() != GO_ON or os.getppid() != self._parent

    def serve(self) -> None:
        """Answer requests until the rank sends an empty line, or closes the pipe."""
        for line in sys.stdin.buffer:
            if not line.strip():
                return
            self._told = False
            request = WriteRequest(*json.loads(line))
            try:
                _answer({"written": self._written(request)})
                if request.completion is not None:
                    _answer({"complete": self._completed(request)})
            except Exception as error:  # the answer must come: a rank may wait for it
                self._failed(request, _words(error, request.partial))

    def _failed(self, request: WriteRequest, why: str) -> None:
        """Say it to the rank, and to the one that waits for this rank's part; rank 0 takes the folder away."""
        if request.completion is not None:
            discard(request.partial)
        else:
            with contextlib.suppress(OSError):
                _leave_word(request, {"failed": f"rank {request.rank}: {why}"})
        _answer({"failed": why})

    def _written(self, request: WriteRequest) -> int:
        """Write a rank's files, leave word of their sums, and return their bytes."""
        if self._map is None or len(self._map) != request.size:
            self._map = mmap.mmap(self._descriptor, request.size, prot=mmap.PROT_READ)
        total = sum(size for _, size in request.files.values())
        rate = WriteRate(total, request.interval_s, request.pace, time.monotonic())
        sums: dict[str, int] = {}
        done = 0
        try:
            for name, (offset, size) in request.files.items():
                path = os.path.join(request.partial, name)
                sums[name] = self._write(path, memoryview(self._map)[offset : offset + size], rate, done)
                done += size
        except OSError:
            for name in request.files:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(request.partial, name))
            raise
        for name in request.own:
            path = os.path.join(request.partial, name)
            sums[name] = crc32_of(path)
            done += os.stat(path).st_size
        _leave_word(request, {"sums": sums})
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
                value = zlib.crc32(chunk, value)
                while chunk:
                    chunk = chunk[os.write(descriptor, chunk) :]
                paced = self._passed(finish, rate, done + end)
                if paced and end - begun >= _PIECE_BYTES:
                    _write_out(descriptor, begun, end)
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
            if word == ABANDON:
                raise AbandonedError("another rank's part could not be written")
            now = time.monotonic()
            rate.look(done, limit_s, recent_s, now)
            if self.hurried or rate.per_s == float("inf"):
                return False
            if now >= finish:
                return True
            time.sleep(min(_LOOK_S, finish - now))

    def _word(self) -> int:
        return heard(self._map)[0] if self._map is not None else GO_ON

    def _completed(self, request: WriteRequest) -> str:
        """Wait for the other ranks' parts and complete the checkpoint; returns its path."""
        assert request.completion is not None
        assert request.place is not None
        what = Completion(*request.completion)
        sums: dict[str, int] = {}
        missing, until, pause = what.world_size, None, 0.005
        while True:
            for path in _words_there(request.partial):
                with open(path, encoding="utf-8") as file:
                    word = json.load(file)
                os.unlink(path)
                if "failed" in word:
                    raise AbandonedError(word["failed"])
                sums.update(word["sums"])
                missing -= 1
            if not missing:
                break
            if self._word() == ABANDON:
                raise AbandonedError("another rank's part could not be written")
            now = time.monotonic()
            until = until or (now + _OTHERS_S if self.hurried else None)
            if until is not None and now > until:
                raise AbandonedError(f"{missing} of {what.world_size} ranks did not write their parts in time")
            time.sleep(pause)
            pause = min(1.0, 2 * pause)
        return complete(request.partial, what, sums, CheckpointPlace.taken_over(request.place), durable=True)


def _write_out(descriptor: int, begin: int, end: int) -> None:
    """Have the disk begin with a piece of a file, and wait for the piece before it, which then leaves the page cache.

    Unlike fdatasync this commits no journal of the file system, which others would wait for.
    """
    start, wait = 2, 7  # SYNC_FILE_RANGE_WRITE; and WAIT_BEFORE and WAIT_AFTER
    before = begin - _PIECE_BYTES
    if _LIBC is None or _LIBC.sync_file_range(descriptor, begin, end - begin, start) or before < 0:
        return
    _LIBC.sync_file_range(descriptor, before, begin - before, wait)
    os.posix_fadvise(descriptor, before, begin - before, os.POSIX_FADV_DONTNEED)


def _libc() -> Optional[Any]:
    """Return the C library where it has sync_file_range."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        library.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    except (OSError, AttributeError):
        return None
    return library


_LIBC = _libc()


def _leave_word(request: WriteRequest, document: dict[str, Any]) -> None:
    """Tell the one that completes the checkpoint what became of this rank's part."""
    word = os.path.join(request.partial, f"{WORDS}{request.rank}")
    with open(f"{word}.tmp", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.rename(f"{word}.tmp", word)


def _words_there(partial: str) -> list[str]:
    names = [name for name in os.listdir(partial) if name.startswith(WORDS) and not name.endswith(".tmp")]
    return [os.path.join(partial, name) for name in names]


def _words(error: Exception, partial: str) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename or partial}"
    return str(error) if isinstance(error, AbandonedError) else f"{type(error).__name__}: {error}"


def _answer(document: dict[str, Any]) -> None:
    """Tell the rank, if it is there to hear it."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(document).encode() + b"\n")


def main() -> None:
    """Serve the rank that has started this process, with the memory whose descriptor is the only argument."""
    Writer(int(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
