"""A checkpoint's files in memory that a rank shares with its writer: byte for byte what PyTorch would write."""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
import mmap
import os
import struct
import threading
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional

from cordee.core.units import format_size
from cordee.machine.memory import MemorySource

HEADER_BYTES = 4096
_HEADER = struct.Struct("<Idd")
GO_ON, HURRY, ABANDON = range(3)

_MOST_SHARE = 0.8
_TOUCHED_BYTES = 4 << 20
LAST_IN_TURN = 19
_BESIDE_TENSOR_BYTES = 4096


class SnapshotMemory:
    """Memory that outlives neither its rank nor the rank's writer, and is kept for the next save.

    The first page is a word to the writer and what steps take; then come the files.

    Attributes:
        files: (offset, bytes) by name.
        descriptor: of the memory, for the writer.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("cordee-checkpoint")
        self.files: dict[str, tuple[int, int]] = {}
        self._map = mmap.mmap(-1, HEADER_BYTES)
        self.size = 0
        self._end = HEADER_BYTES
        self._toucher: Optional[threading.Thread] = None
        self._touched = threading.Event()
        self.reserve(0)

    def expect(self, size: int) -> None:
        """Have room for a first snapshot of so many bytes, if there is memory for it, and have a thread touch it beside the
        training: a page that nobody has touched takes three times as long to copy to."""
        if self.lacks(size):
            return
        self.reserve(size)
        self._toucher = threading.Thread(target=self._touch, args=(self._map,), name="cordee-memory", daemon=True)
        self._toucher.start()

    def _touch(self, memory: mmap.mmap) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, LAST_IN_TURN)  # of this thread
        begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for at in range(HEADER_BYTES, len(memory), _TOUCHED_BYTES):
            if self._touched.is_set():
                return
            ctypes.memset(begin + at, 0, min(_TOUCHED_BYTES, len(memory) - at))

    def begin(self) -> None:
        """Forget the files of the save before."""
        self._touched.set()
        if self._toucher is not None:
            self._toucher.join()
            self._toucher = None
        self.files = {}
        self._end = HEADER_BYTES
        self.say(GO_ON)

    def reserve(self, size: int) -> None:
        """Have room for `size` more bytes of files."""
        needed = self._end + size
        if needed > self.size:
            self.size = -(-needed // mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self.descriptor, self.size)
            self._map = mmap.mmap(self.descriptor, self.size)

    def lacks(self, size: int) -> str:
        """Return why a snapshot of so many bytes does not fit beside the training, empty where it does."""
        growth = self._end + size - self.size
        reading = MemorySource().read() if growth > 0 else None
        if reading is None:
            return ""
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
        room = int(_MOST_SHARE * reading.available_bytes / max(1, ranks))
        if growth <= room:
            return ""
        of = "the job's memory limit" if reading.source == "cgroup" else "the node's memory"
        free = format_size(reading.available_bytes)
        among = f" among {ranks} ranks" if ranks > 1 else ""
        return f"a snapshot needs {format_size(growth)}, and of {of} {free} are free{among}"

    def write(self, data: Any) -> int:
        """Append bytes to what is there."""
        view = memoryview(data).cast("B")
        self.reserve(len(view))
        self._map[self._end : self._end + len(view)] = view
        self._end += len(view)
        return len(view)

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[io.RawIOBase]:
        """Give a file to write into; the next one may begin when this one is closed."""
        begin = self._end
        yield _File(self, begin)
        self.files[name] = (begin, self._end - begin)

    @property
    def end(self) -> int:
        """Where the next byte goes."""
        return self._end

    def view(self, offset: int, size: int) -> memoryview:
        """Return a part of it."""
        return memoryview(self._map)[offset : offset + size]

    def go_on(self, files: Mapping[str, tuple[int, int]], end: int) -> None:
        """Have these files in it, which somebody has filled, and the next one behind them."""
        self.files, self._end = dict(files), end

    def say(self, word: int, limit_s: float = 0.0, recent_s: float = 0.0) -> None:
        """Tell the writer, which looks several times a second."""
        _HEADER.pack_into(self._map, 0, word, limit_s, recent_s)


def heard(memory: mmap.mmap) -> tuple[int, float, float]:
    """Return what `say` told last."""
    word, limit_s, recent_s = _HEADER.unpack_from(memory, 0)
    return word, limit_s, recent_s


class _File(io.RawIOBase):
    def __init__(self, memory: SnapshotMemory, begin: int) -> None:
        self._memory, self._begin = memory, begin

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._memory.write(data)

    def tell(self) -> int:
        return self._memory.end - self._begin


def storage_writer(memory: SnapshotMemory, folder: str) -> Any:
    """Return a StorageWriter that puts a checkpoint's files into memory, or into `folder` where memory does not suffice.

    Its `lack` then says why; `files` of the memory do not hold what lies in the folder. `part` is what `layout_of` needs: planner,
    items and their results; None where what tensors hold cannot be written over.
    """
    import torch
    from torch.distributed.checkpoint import FileSystemWriter
    from torch.distributed.checkpoint.filesystem import FileSystem

    class Memory(FileSystem):  # type: ignore[misc]
        @contextlib.contextmanager
        def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
            with memory.file(os.path.basename(path)) as file:
                yield file

        def exists(self, path: Any) -> bool:
            return os.path.basename(path) in memory.files

        def rename(self, path: Any, new_path: Any) -> None:
            memory.files[os.path.basename(new_path)] = memory.files.pop(os.path.basename(path))

        def rm_file(self, path: Any) -> None:
            memory.files.pop(os.path.basename(path))

        def mkdir(self, path: Any) -> None:
            pass

    class SnapshotWriter(FileSystemWriter):  # type: ignore[misc]
        lack: Optional[str] = None
        part: Optional[tuple[Any, ...]] = None

        def __init__(self) -> None:
            super().__init__(Path(folder), sync_files=False)
            self.fs = Memory()

        def write_data(self, plan: Any, planner: Any) -> Any:
            tensors = [item for item in plan.items if item.tensor_data is not None]
            size = sum(map(_bytes_of, tensors)) + _BESIDE_TENSOR_BYTES * len(plan.items)
            self.lack = memory.lacks(size)
            if self.lack:
                os.makedirs(folder, exist_ok=True)
                self.fs, self.sync_files = FileSystem(), True
                return super().write_data(plan, planner)
            memory.reserve(size)
            with _without_sums(torch):
                written = super().write_data(plan, planner)
            if hasattr(torch.serialization, "set_crc32_options"):
                self.part = planner, plan.items, written.value()
            return written

    return SnapshotWriter()


def _bytes_of(item: Any) -> int:
    """Return the bytes of the part of a tensor that a rank writes."""
    about = item.tensor_data
    return int(math.prod(about.chunk.sizes) * about.properties.dtype.itemsize)


@contextlib.contextmanager
def _without_sums(torch: Any) -> Iterator[None]:
    """Leave out torch's CRC-32 of each tensor, which takes longer than the copy, and which it never compares."""
    switch = getattr(torch.serialization, "set_crc32_options", None)
    if switch is None:
        yield
        return
    before = torch.serialization.get_crc32_options()
    switch(False)
    try:
        yield
    finally:
        switch(before)
