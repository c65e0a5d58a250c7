"""Writes one shard: files are read straight to where they stand in the shard, and written some hundreds of kilobytes at once.

Headers, contents and padding stand one after the other in one buffer that is used again and again: no byte is copied in
between, and a small file costs four system calls.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from isal.isal_zlib import crc32

from cordee.systems.data.node.shards.entries import PackedEntry, Sample
from cordee.systems.data.node.shards.members import BLOCK, END, folder_header, header, label_member
from cordee.systems.data.pack._base import Unreadable
from cordee.systems.data.pack.output import Output
from cordee.systems.data.pack.shards.columns import ShardColumns

if TYPE_CHECKING:
    import numpy

    from cordee.systems.data.pack._base import PackPlan

_BUFFER_BYTES = 1 << 20
_ZEROS = bytes(BLOCK)
_MANY_ZEROS = memoryview(bytes(1 << 20))
_ATTEMPTS = 3
# Bytes of a key beyond which a member needs more headers than one.
_LONG_KEY = 64
# A file that became a pipe since it was listed must not hang.
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_GONE = {errno.ENOENT: "is gone"}


class ShardWriter:
    """Writes samples into an open file and notes where each field lies.

    Args:
        descriptor: of the empty file.
        skip_unreadable: leave samples out, by name in `left_out`, of which a file cannot be read.
        tell: called with (samples, bytes of files) written since the last call.

    Raises (all methods):
        Unreadable: a file cannot be read. OSError: the shard cannot be written.
    """

    def __init__(
        self, descriptor: int, plan: PackPlan, skip_unreadable: bool, tell: Callable[[int, int], None]
    ) -> None:
        self.left_out: list[str] = []
        self._descriptor, self._plan, self._skip, self._tell = descriptor, plan, skip_unreadable, tell
        self._root = plan.origin.root + b"/" if plan.origin.root is not None else None
        self._field_number = {field: number for number, field in enumerate(plan.fields)}
        self._output = Output(descriptor, _BUFFER_BYTES)
        self._buffer, self._view = self._output.buffer()
        self._used = 0  # bytes of the buffer that are not written yet
        self._base = 0  # where the buffer begins in the shard
        self._told = (0, 0)
        self._shared: tuple[bytes | None, int] = (None, -1)
        self._columns = ShardColumns()

    def folders(self, names: Iterable[bytes]) -> None:
        """Write folders that hold nothing."""
        for name in names:
            self._put(folder_header(name))

    def write(self, samples: Iterable[Sample]) -> None:
        """Write samples in their order."""
        for sample in self._hurry(samples):
            rows, begin = len(self._columns.rows), self._base + self._used
            try:
                self._write_sample(sample)
            except Unreadable as fault:
                if not self._skip:
                    raise
                self._rewind(begin, rows)
                name = fault.entry.name.decode("utf-8", "backslashreplace")
                self.left_out.append(f"{name}: {fault.reason}")

    def _hurry(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Write samples that are small files as they were listed; yield every other one when its turn has come.

        One function without calls of our own: a small file costs less to copy than ten calls do.
        """
        columns, root, numbers = self._columns, self._root, self._field_number
        rows, fields_at, offsets = columns.rows.append, columns.numbers.append, columns.offsets.append
        lengths, crcs = columns.lengths.append, columns.crcs.append
        os_open, os_readv, os_fstat, os_close = os.open, os.readv, os.fstat, os.close
        for sample in samples:
            key, label, fields, entries, renamed = sample
            need = (2 * len(entries) + 3) * BLOCK + sum([entry[1] for entry in entries])
            if need > _BUFFER_BYTES or root is None or renamed or len(key) > _LONG_KEY or "cls" in fields:
                yield sample
                continue
            if self._used + need > _BUFFER_BYTES:
                self._flush()
            used, base, number, before = self._used, self._base, columns.samples, len(columns.rows)
            buffer, view = self._buffer, self._view
            for field, (name, length, path, _, stamp) in zip(fields, entries, strict=True):
                if path is not None or stamp < 0:
                    break
                head = header(name, length)
                at = used + len(head)
                end = at + length
                try:
                    descriptor = os_open(root + name, _OPEN)
                    try:
                        # One byte more than there should be: a file that has grown is noticed.
                        got = os_readv(descriptor, (view[at : end + 1],))
                        about = os_fstat(descriptor)
                    finally:
                        os_close(descriptor)
                except OSError:
                    break
                if got != length or about.st_size != length or about.st_mtime_ns != stamp:
                    break
                buffer[used:at] = head
                used = end + (-length & 511)
                buffer[end:used] = _ZEROS[: used - end]
                rows(number)
                fields_at(numbers[field])
                offsets(base + at)
                lengths(length)
                crcs(crc32(view[at:end]))
                columns.bytes += length
            else:
                if label is not None:
                    member = label_member(key, label)
                    buffer[used : used + len(member)] = member
                    used += len(member)
                columns.sample(key, label)
                self._used = used
                continue
            columns.forget_fields(before)
            yield sample

    def finish(self) -> int:
        """Write the end of the archive and all that is left; return the shard's size."""
        self._put(END)
        self._flush()
        self._output.drain()
        if self._shared[1] >= 0:
            os.close(self._shared[1])
            self._shared = (None, -1)
        return self._base

    def close(self) -> None:
        """End the thread that writes."""
        self._output.close()

    def columns(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """Return the columns of the shard's index."""
        return self._columns.arrays(self._plan.fields)

    @property
    def samples(self) -> int:
        """Return how many samples are written."""
        return self._columns.samples

    def _write_sample(self, sample: Sample) -> None:
        key, label, fields, entries, renamed = sample
        said = None
        for field, entry in zip(fields, entries, strict=True):
            name, path = entry.name, entry.path
            member, original = (
                (key + b"." + field.encode("utf-8", "surrogateescape"), name) if renamed else (name, None)
            )
            if path is None and self._root is not None:
                path = self._root + name
            at, end, crc = self._stream(entry, path, member, original)
            if field == "cls":
                said = self._label_in(at, end)
            self._columns.field(self._field_number[field], at, end - at, crc)
        if label is None:
            label = said
        elif "cls" not in fields:
            self._put_label(key, label)
        self._columns.sample(key, label)

    def _label_in(self, at: int, end: int) -> int | None:
        """Return the number that a `cls` field holds, if it is still in the buffer and is one."""
        if at < self._base or end - at > 20:
            return None
        text = self._buffer[at - self._base : end - self._base].strip()
        return int(text) if text.lstrip(b"-").isdigit() else None

    def _put_label(self, key: bytes, label: int) -> None:
        """Write the label as readers of WebDataset know it: a field `cls`, not in the index, which has a column for it."""
        self._put(label_member(key, label))

    def _stream(
        self, entry: PackedEntry, path: bytes | None, member: bytes, original: bytes | None
    ) -> tuple[int, int, int]:
        """Write header and bytes of anything, however large; return where the bytes begin and end, and their check sum.

        A file that changes under the reading is read again.
        """
        begin = self._base + self._used
        for _ in range(_ATTEMPTS):
            try:
                found = self._try_stream(entry, path, member, original)
            except _SourceError as error:
                raise Unreadable(entry, error.reason) from None
            if found is not None:
                self._put(_ZEROS[: -(found[1] - found[0]) % BLOCK])
                return found
            self._rewind(begin, len(self._columns.rows))
        raise Unreadable(entry, "changes while it is read")

    def _try_stream(
        self, entry: PackedEntry, path: bytes | None, member: bytes, original: bytes | None
    ) -> tuple[int, int, int] | None:
        if path is None:
            self._put(header(member, entry.length, original))
            begin = self._base + self._used
            crc = self._copy_chunks(entry)
            return begin, begin + entry.length, crc
        whole = entry.stamp_ns >= 0
        with _reading():
            descriptor = os.open(path, _OPEN) if whole else self._shared_file(path)
        try:
            with _reading():
                before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise _SourceError("is no regular file any more")
            length = before.st_size if whole else entry.length
            self._put(header(member, length, original))
            begin = self._base + self._used
            sparse = whole and before.st_blocks * 512 < before.st_size
            crc, got = self._copy_file(descriptor, entry.offset, length, sparse)
            with _reading():
                after = os.fstat(descriptor)
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or got != length:
                return None
            return begin, begin + length, crc
        finally:
            if whole:
                os.close(descriptor)

    def _shared_file(self, path: bytes) -> int:
        """Return a descriptor of a file that holds many entries; it stays open."""
        if self._shared[0] != path:
            if self._shared[1] >= 0:
                os.close(self._shared[1])
                self._shared = (None, -1)
            self._shared = (path, os.open(path, _OPEN))
        return self._shared[1]

    def _copy_file(self, descriptor: int, offset: int, length: int, sparse: bool) -> tuple[int, int]:
        """Copy a range of a file; return its check sum and how much there was. Holes stay holes."""
        crc, position, end = 0, offset, offset + length
        while position < end:
            with _reading():
                data = _next_data(descriptor, position, end) if sparse else position
            if data > position:
                crc = self._leave_hole(data - position, crc)
                position = data
                continue
            if self._used >= _BUFFER_BYTES - BLOCK:
                self._flush()
            stop = min(self._used + end - position, _BUFFER_BYTES)
            with _reading():
                got = os.preadv(descriptor, [self._view[self._used : stop]], position)
            if not got:
                break
            crc = crc32(self._view[self._used : self._used + got], crc)
            self._used += got
            position += got
        return crc, position - offset

    def _copy_chunks(self, entry: PackedEntry) -> int:
        crc, got = 0, 0
        chunks = self._plan.origin.chunks(entry)
        while True:
            with _reading():
                chunk = next(chunks, None)
            if chunk is None:
                break
            got += len(chunk)
            if got > entry.length:
                break
            crc = crc32(chunk, crc)
            self._put(chunk)
        if got != entry.length:
            raise _SourceError(f"holds {got} bytes or more where {entry.length} were listed")
        return crc

    def _leave_hole(self, length: int, crc: int) -> int:
        self._flush()
        self._output.drain()
        os.lseek(self._descriptor, length, os.SEEK_CUR)
        self._base += length
        while length > 0:
            part = min(length, len(_MANY_ZEROS))
            crc = crc32(_MANY_ZEROS[:part], crc)
            length -= part
        return crc

    def _put(self, data: bytes) -> None:
        """Append bytes that are in memory."""
        if len(data) > _BUFFER_BYTES - self._used:
            self._flush()
        if len(data) > _BUFFER_BYTES:
            self._output.write(memoryview(data))
            self._base += len(data)
            return
        self._buffer[self._used : self._used + len(data)] = data
        self._used += len(data)

    def _flush(self) -> None:
        if self._used:
            self._output.write(self._view[: self._used])
            self._base += self._used
            self._used = 0
            self._buffer, self._view = self._output.buffer()
        samples, done = self._told
        columns = self._columns
        self._tell(columns.samples - samples, columns.bytes - done)
        self._told = (columns.samples, columns.bytes)

    def _rewind(self, position: int, rows: int) -> None:
        """Forget everything from a position of the shard on."""
        self._columns.forget_fields(rows)
        if position >= self._base:
            self._used = position - self._base
            return
        self._output.drain()
        self._used, self._base = 0, position
        os.ftruncate(self._descriptor, position)
        os.lseek(self._descriptor, position, os.SEEK_SET)


class _SourceError(Exception):
    """Reading failed; writing did not."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _reading:  # noqa: N801
    """Tells errors of reading from those of writing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise _SourceError(_GONE.get(error.errno or 0) or error.strerror or str(error)) from None


def _next_data(descriptor: int, position: int, end: int) -> int:
    """Return where the next bytes that are no hole begin; `end` where there are none."""
    try:
        return min(os.lseek(descriptor, position, os.SEEK_DATA), end)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        if error.errno == errno.EINVAL:  # a file system without holes
            return position
        raise
