"""A disk that fails where a test wants it to: any single call refuses, loses what it was given, or stands still."""

from __future__ import annotations

import errno
import fnmatch
import os
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from cordee.runs.disk import Disk, Place

CALLS = (
    "open",
    "write",
    "fsync",
    "truncate",
    "stat",
    "close",
    "read",
    "listdir",
    "mkdir",
    "replace",
    "unlink",
    "touch",
)
REFUSALS = (errno.EIO, errno.ESTALE, errno.EDQUOT, errno.ENOSPC, errno.EROFS, errno.EPERM)


@dataclass
class DiskFault:
    """What befalls calls.

    Attributes:
        call: its name, one of CALLS.
        number: the errno that it raises; 0: it stands still until `FaultyDisk.release`.
        pattern: a shell pattern for the end of the path.
        times: how often, then no more; -1: until it is removed.
        after: how many such calls go well first.
        lose: what was written to the file since it was last durable is gone, as after a write-back that a server refused.
        part: of a write, how many bytes are taken first.
    """

    call: str
    number: int
    pattern: str = "*"
    times: int = 1
    after: int = 0
    lose: bool = False
    part: int = 0


class FaultyDisk(Disk):
    """The real disk with faults.

    Attributes:
        faults: that are still to come, the first that fits counts.
        calls: how often each call was made.
        met: the calls that met a fault.
    """

    def __init__(self, *faults: DiskFault) -> None:
        self.faults = list(faults)
        self.calls: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        self._paths: dict[int, str] = {}
        self._durable: dict[str, int] = {}
        self._open = threading.Event()
        self._open.set()
        self._mutex = threading.Lock()

    def fail(self, call: str, number: int, pattern: str = "*", times: int = 1, **more: Any) -> DiskFault:
        """Have calls fail from now on; see `DiskFault`."""
        fault = DiskFault(call, number, pattern, times, **more)
        self.faults.append(fault)
        return fault

    def hold(self, call: str, pattern: str = "*") -> None:
        """Have such calls stand still until `release`."""
        self._open.clear()
        self.faults.append(DiskFault(call, 0, pattern, -1))

    def release(self) -> None:
        """Let everything go on, without any fault from now on."""
        self.faults.clear()
        self._open.set()

    def _meet(self, call: str, path: object) -> DiskFault | None:
        with self._mutex:
            self.calls[call] += 1
            for fault in self.faults:
                if fault.call == call and fault.times and fnmatch.fnmatch(os.fspath(str(path)), "*" + fault.pattern):
                    if fault.after:
                        fault.after -= 1
                        continue
                    fault.times -= 1
                    self.met[call] += 1
                    break
            else:
                return None
        if fault.number == 0:
            self._open.wait()
            return None
        return fault

    def _raise(self, fault: DiskFault, path: object) -> None:
        raise OSError(fault.number, os.strerror(fault.number), str(path))

    def _plain(self, call: str, path: object) -> None:
        fault = self._meet(call, path)
        if fault is not None:
            self._raise(fault, path)

    def open(self, path: Place, flags: int, below: Place | None = None) -> int:
        self._plain("open", path)
        descriptor = super().open(path, flags, below)
        self._paths[descriptor] = str(path)
        self._durable.setdefault(str(path), os.fstat(descriptor).st_size)
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        path = self._paths[descriptor]
        fault = self._meet("write", path)
        if fault is not None:
            if fault.part:
                super().write(descriptor, bytes(data)[: fault.part])
            self._raise(fault, path)
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        path = self._paths[descriptor]
        self._lose_or_raise("fsync", path)
        super().fsync(descriptor)
        self._durable[path] = os.fstat(descriptor).st_size

    def close(self, descriptor: int) -> None:
        path = self._paths.pop(descriptor)
        super().close(descriptor)
        self._lose_or_raise("close", path)

    def _lose_or_raise(self, call: str, path: str) -> None:
        fault = self._meet(call, path)
        if fault is not None:
            if fault.lose:
                os.truncate(path, self._durable[path])
            self._raise(fault, path)

    def truncate(self, descriptor: int, size: int) -> None:
        self._plain("truncate", self._paths[descriptor])
        super().truncate(descriptor, size)

    def stat(self, place: Place | int) -> os.stat_result:
        self._plain("stat", self._paths.get(place, "") if isinstance(place, int) else place)
        return super().stat(place)

    def read(self, path: Place) -> bytes:
        self._plain("read", path)
        return super().read(path)

    def listdir(self, path: Place) -> list[str]:
        self._plain("listdir", path)
        return super().listdir(path)

    def mkdir(self, path: Place) -> None:
        self._plain("mkdir", path)
        super().mkdir(path)

    def replace(self, source: Place, target: Place) -> None:
        self._plain("replace", target)
        super().replace(source, target)

    def unlink(self, path: Place) -> None:
        self._plain("unlink", path)
        super().unlink(path)

    def touch(self, path: Place) -> None:
        self._plain("touch", path)
        super().touch(path)
