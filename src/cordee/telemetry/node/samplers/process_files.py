"""Files of processes that are read again and again, kept open while there are not too many."""

from __future__ import annotations

import os
import resource
from typing import Iterable

from cordee.machine.files import read_once

_MOST_OPEN = 512


class ProcessFiles:
    """Reads `/proc/<pid>/<name>`; a file that stays open never shows a later process with the same pid.

    Args:
        proc: where /proc is.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._open: dict[tuple[int, str], int] = {}
        self._most = min(_MOST_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def read(self, pid: int, name: str, keep: bool) -> bytes:
        """Return the content of a file of at most a page.

        Args:
            keep: whether this process will be asked for again.

        Raises:
            OSError: it cannot be read, or the process is gone.
        """
        descriptor = self._open.get((pid, name))
        if descriptor is not None:
            try:
                return os.pread(descriptor, 4096, 0)
            except OSError:
                os.close(self._open.pop((pid, name)))
        path = f"{self._proc}/{pid}/{name}"
        if not keep or len(self._open) >= self._most:
            return read_once(path)
        descriptor = self._open[pid, name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(descriptor, 4096, 0)

    def only(self, pids: Iterable[int]) -> None:
        """Close the files of all other processes."""
        wanted = set(pids)
        for key in [key for key in self._open if key[0] not in wanted]:
            os.close(self._open.pop(key))
