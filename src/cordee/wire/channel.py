"""The channel between one rank and its agent: a small memory-mapped file with a ring of events and a few words.

The rank only writes `head` and its own words, the agent only `tail` and the words of stopping, each as one aligned
64-bit store, so that neither ever waits for the other and a `kill -9` of either leaves a channel that can be read.
An event lies in the ring until the agent says that it is stored. It carries a checksum, because the reader must not
trust what a stray pointer, or another core's order of stores, may have put there.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
import zlib
from typing import Any, Mapping, Optional, Union

from cordee.wire.facts import ChannelFact, decode_fact, encode_fact

MAGIC = int.from_bytes(b"cordee\r\n", "little")
VERSION = 1
HEADER_BYTES = 4096
RING_BYTES = 1 << 20
CHANNEL_BYTES = HEADER_BYTES + RING_BYTES
STOP_WAIT_S = 30.0

# Words of the header, as indices of 64-bit words; each writer's words share no cache line with the other's.
_MAGIC, _VERSION, _RING, _STOP_WAIT_MS = 0, 1, 2, 3
_HEAD, _DROPPED, _STEP, _TOTAL, _FLAGS, _ASKED, _ACK = 8, 9, 10, 11, 12, 13, 14
_TAIL, _STOP_REQUESTED, _STOP_STEP = 24, 25, 26

FLAG_ATTACHED, FLAG_STOPPING = 1, 2

RESERVED = "cordee/"  # names that are Cordée's own
_RECORD_MAGIC = 0xC0DE
_PREFIX = struct.Struct("<HHI")  # magic, length in 8-byte units, CRC-32 of all that follows
_HEAD_OF_BODY = struct.Struct("<dqQ")  # UTC time, step, number of values
_SMALLEST = _PREFIX.size + _HEAD_OF_BODY.size
_LARGEST = 65535 * 8
_NO_STEP = -(1 << 63)
_MOST_SHAPES = 1024
_MOST_NAMES = 10_000
_LONGEST_NAME = 200
_DAMAGE_PATIENCE_S = 1.0

Path = Union[str, "os.PathLike[str]"]
Event = tuple[int, float, Optional[int], dict[str, float]]
Shape = tuple[Any, bytes, int]


def bounded_name(name: str) -> str:
    """Return a metric's name as it is recorded: without NUL, and a very long one cut, with a checksum that tells it apart."""
    name = name.replace("\0", "\ufffd")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}…{zlib.crc32(name.encode('utf-8', 'replace')):08x}"


def create_channel(path: Path, *, stop_wait_s: float = STOP_WAIT_S) -> None:
    """Make an empty channel with mode 0600; all its blocks exist, so that a full disk can never end a rank.

    Args:
        path: where; an existing file is an error.
        stop_wait_s: how long a rank may wait in `cordee.stopping` for the others' answer.

    Raises:
        OSError: the folder is missing or full.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, CHANNEL_BYTES)
        os.pwrite(descriptor, struct.pack("<QQQQ", MAGIC, VERSION, RING_BYTES, int(stop_wait_s * 1000)), 0)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


class _Mapping:
    """The mapped file: `words` of the header and `ring`.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is no channel of this version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(self._descriptor).st_size
            start = os.pread(self._descriptor, 24, 0)
            if size != CHANNEL_BYTES or start != struct.pack("<QQQ", MAGIC, VERSION, RING_BYTES):
                raise ValueError(f"{os.fspath(path)} is no channel of version {VERSION}")
            self._map = mmap.mmap(self._descriptor, size)
        except (OSError, ValueError):
            os.close(self._descriptor)
            raise
        self._view = memoryview(self._map)
        self.words = self._view[:HEADER_BYTES].cast("Q")
        self.ring = self._view[HEADER_BYTES:]
        self._closed = False

    def close(self) -> None:
        """Let go of the file; calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        for view in (self.words, self.ring, self._view):
            view.release()
        self._map.close()
        os.close(self._descriptor)


class ChannelWriter(_Mapping):
    """The rank's end. Not thread-safe: `cordee.client` guards it.

    Attributes:
        names: what `cordee.log` has recorded in this process, the first 10,000 names.

    Raises:
        BlockingIOError: another living process writes to this channel.
        OSError, ValueError: as `_Mapping`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise
        head, tail = self.words[_HEAD], self.words[_TAIL]
        if head % 8 or not 0 <= head - tail <= RING_BYTES:
            head = self.words[_HEAD] = tail
        self._head = head
        self._tail = tail
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self.names: set[str] = set()
        self.words[_FLAGS] |= FLAG_ATTACHED

    @property
    def stop_wait_s(self) -> float:
        """How long `cordee.stopping` may wait for an answer."""
        return self.words[_STOP_WAIT_MS] / 1000

    def uses_stopping(self) -> None:
        """Say that this rank calls `cordee.stopping`."""
        self.words[_FLAGS] |= FLAG_STOPPING

    def set_total(self, total: int) -> None:
        """Say how many steps the training has."""
        if 0 <= total < 1 << 63:
            self.words[_TOTAL] = total

    def drop(self, count: int = 1) -> None:
        """Count values or events that could not be recorded."""
        self.words[_DROPPED] += count

    def write(self, step: Optional[int], values: Mapping[str, Any], shape: Optional[Shape] = None) -> bool:
        """Append one event; False, and counted as dropped, when the ring is full.

        Args:
            shape: of the names, where an adapter writes: see `shape_of`; its steps are not the rank's progress.

        Raises:
            struct.error, TypeError, OverflowError: a value is no number, or the step no integer; nothing was written.
        """
        of_rank = shape is None
        if shape is None:
            names = tuple(values)
            shape = self._shapes.get(names)
            if shape is None:
                shape = self._own_shape(names)
        pack, encoded_names, length = shape
        body = pack(time.time(), _NO_STEP if step is None else step, len(values), *values.values()) + encoded_names
        head = self._head
        after = head + length
        if after - self._tail > RING_BYTES:
            self._tail = self.words[_TAIL]
            if after - self._tail > RING_BYTES or length > _LARGEST:
                self.words[_DROPPED] += 1
                return False
        record = _PREFIX.pack(_RECORD_MAGIC, length >> 3, zlib.crc32(body)) + body
        position = head & (RING_BYTES - 1)
        end = position + length
        if end <= RING_BYTES:
            self.ring[position:end] = record
        else:
            first = RING_BYTES - position
            self.ring[position:] = record[:first]
            self.ring[: length - first] = record[first:]
        self._head = self.words[_HEAD] = after
        if of_rank and step is not None and step >= 0:
            self.words[_STEP] = step + 1
        return True

    def tell(self, fact: ChannelFact) -> bool:
        """Append a fact, which `ChannelReader.told` collects; False when the ring is full."""
        text = encode_fact(fact)
        length = _SMALLEST + len(text)
        return self.write(None, {}, (_HEAD_OF_BODY.pack, text + b" " * (-length % 8), length + -length % 8))

    def step_of_adapter(self, step: int) -> None:
        """Say how far the training is by a step that it gave to another library, unless the rank says so itself."""
        if not self.names and not self.words[_FLAGS] & FLAG_STOPPING and self.words[_STEP] <= step < 1 << 62:
            self.words[_STEP] = step + 1

    def ask(self, step: int) -> bool:
        """Publish the step that the rank is about to run and return whether somebody asks it to stop."""
        words = self.words
        words[_ASKED] = words[_STEP] = step + 1
        return words[_STOP_REQUESTED] != 0

    def answer(self, step: Optional[int]) -> None:
        """Say that the rank waits before `step`; None: it no longer waits."""
        self.words[_ACK] = 0 if step is None else step + 1

    @property
    def stop_step(self) -> Optional[int]:
        """The step that all ranks were told to stop at, or None while there is none."""
        value = self.words[_STOP_STEP]
        return value - 1 if value else None

    def _own_shape(self, names: tuple[str, ...]) -> Shape:
        shape = shape_of(names)
        if len(self._shapes) < _MOST_SHAPES:
            self._shapes[names] = shape
        if len(self.names) < _MOST_NAMES:
            self.names.update(name for name in names if not name.startswith(RESERVED))
        return shape


def shape_of(names: tuple[str, ...]) -> Shape:
    """Return what the events of these names have in common: how numbers are packed, the names' bytes, the event's length."""
    encoded = "\0".join(map(bounded_name, names)).encode("utf-8", "replace")
    raw = _SMALLEST + 8 * len(names) + len(encoded)
    padding = -raw % 8
    return struct.Struct(f"<dqQ{len(names)}d").pack, encoded + b"\0" * padding, raw + padding


class ChannelReader(_Mapping):
    """The agent's end: reads ahead with its own cursor and frees only what was acknowledged.

    A new reader of the same file begins at the last acknowledged event, so that events are read again rather than
    lost; their offsets stay the same. Nothing that a rank writes into the file makes a method raise.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.damaged_bytes = 0
        self._told: list[tuple[float, ChannelFact]] = []
        self._damaged_since: Optional[float] = None
        head, tail = self.words[_HEAD], self.words[_TAIL]
        sane = head % 8 == 0 and tail % 8 == 0 and 0 <= head - tail <= RING_BYTES
        self.cursor: int = tail if sane else head - head % 8

    def read(self, limit: int = 1000, most_bytes: int = RING_BYTES) -> tuple[list[Event], int]:
        """Return at most `limit` new events `(offset, UTC seconds, step or None, values)` and the cursor after them.

        `most_bytes` of the ring are enough: the event that reaches it is the last.
        Offsets are unique within a channel and rise. What lies in the ring but is no event is skipped after a second
        and counted in `damaged_bytes`.
        """
        events: list[Event] = []
        available = self._available()
        enough = self.cursor + most_bytes
        while available and len(events) < limit and self.cursor < enough:
            found = self._event(self.cursor, available)
            if found is not None:
                event, length = found
                if event is not None:
                    events.append(event)
                self._damaged_since = None
            else:
                length = self._skip(available)
                if length == 0:
                    break
                self.damaged_bytes += length
            self.cursor += length
            available -= length
        return events, self.cursor

    def told(self) -> list[tuple[float, ChannelFact]]:
        """Return the facts, each with its UTC seconds, that stood between the events that were read since the last call."""
        news, self._told = self._told, []
        return news

    def acknowledge(self, cursor: int) -> None:
        """Free everything before `cursor`, a value that `read` returned: it is stored elsewhere."""
        if self.words[_TAIL] < cursor <= self.cursor:
            self.words[_TAIL] = cursor

    @property
    def unread_bytes(self) -> int:
        """What `read` has not returned yet."""
        return self._available()

    @property
    def drained(self) -> bool:
        """Whether every event was read and acknowledged."""
        return self._available() == 0 and self.words[_TAIL] >= self.cursor

    @property
    def dropped(self) -> int:
        """Events and values that the rank could not record, since the channel was made."""
        return self.words[_DROPPED]

    @property
    def step(self) -> Optional[int]:
        """The rank's last step by `cordee.log` or `cordee.stopping`, or None."""
        value = self.words[_STEP]
        return value - 1 if value else None

    @property
    def total(self) -> Optional[int]:
        """How many steps the training has, if the rank said so."""
        return self.words[_TOTAL] or None

    @property
    def attached(self) -> bool:
        """Whether a process of the rank ever opened the channel."""
        return bool(self.words[_FLAGS] & FLAG_ATTACHED)

    @property
    def uses_stopping(self) -> bool:
        """Whether the rank ever called `cordee.stopping`."""
        return bool(self.words[_FLAGS] & FLAG_STOPPING)

    def request_stop(self) -> None:
        """Ask the rank to wait at its next `cordee.stopping` until `set_stop_step`."""
        self.words[_STOP_REQUESTED] = 1

    @property
    def ack_step(self) -> Optional[int]:
        """The first step at which this rank can still stop, to be read after `request_stop`; None before its first call.

        A rank that waits says where. One that was told to go on with step n a moment ago, and may hang in a collective
        operation until those that wait are let go, can stop at n + 1: no answer of its own is needed.
        """
        waits_at = self.words[_ACK]
        if waits_at:
            return waits_at - 1
        return self.words[_ASKED] or None

    def set_stop_step(self, step: int) -> None:
        """Tell the rank the step agreed on: the greatest `ack_step` of all ranks."""
        self.words[_STOP_STEP] = max(0, step) + 1

    def _available(self) -> int:
        available = self.words[_HEAD] - self.cursor
        return available if 0 <= available <= RING_BYTES and available % 8 == 0 else 0

    def _event(self, offset: int, available: int) -> Optional[tuple[Optional[Event], int]]:
        """Return the event at an offset and its length, None for one that is a fact; None where nothing is."""
        magic, units, checksum = _PREFIX.unpack(self._bytes(offset, _PREFIX.size))
        length = units << 3
        if magic != _RECORD_MAGIC or not _SMALLEST <= length <= available:
            return None
        body = self._bytes(offset + _PREFIX.size, length - _PREFIX.size)
        if zlib.crc32(body) != checksum:
            return None
        moment, step, count = _HEAD_OF_BODY.unpack_from(body)
        names_at = _HEAD_OF_BODY.size + 8 * count
        if names_at > len(body):
            return None
        if count == 0 and names_at < len(body):
            fact = decode_fact(body[names_at:])
            if fact is not None:
                self._told.append((moment, fact))
            return None, length
        numbers = struct.unpack_from(f"<{count}d", body, _HEAD_OF_BODY.size)
        names = body[names_at:].decode("utf-8", "replace").split("\0")
        return (offset, moment, None if step == _NO_STEP else step, dict(zip(names, numbers))), length

    def _skip(self, available: int) -> int:
        """Return how far the next event is, 0 to try here again later: stores of another core may still arrive."""
        now = time.monotonic()
        if self._damaged_since is None:
            self._damaged_since = now
        if now - self._damaged_since < _DAMAGE_PATIENCE_S:
            return 0
        for distance in range(8, available, 8):
            if self._event(self.cursor + distance, available - distance) is not None:
                return distance
        return available

    def _bytes(self, offset: int, length: int) -> bytes:
        position = offset & (RING_BYTES - 1)
        end = position + length
        if end <= RING_BYTES:
            return bytes(self.ring[position:end])
        return bytes(self.ring[position:]) + bytes(self.ring[: end - RING_BYTES])
