"""Samples of a large recording in a temporary file without a name, read back metric by metric: memory stays small."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np


class Spool:
    """A file that is gone when this process is; where no disk takes it, what is put stays in memory."""

    def __init__(self) -> None:
        self._end = 0
        self._file: Any = None

    def put(self, values: np.ndarray) -> np.ndarray | SpooledValues:
        """Keep float32 [metric, time, device]; returns it as [time, device, metric].

        Raises:
            Nothing for the disk's sake: what it refuses is returned as it was given.
        """
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="cordee-samples-")  # noqa: SIM115 - open as long as this is
            os.pwrite(self._file.fileno(), np.ascontiguousarray(values).data.cast("B"), self._end)
            if os.fstat(self._file.fileno()).st_size < self._end + values.nbytes:
                return values.transpose(1, 2, 0)
        except OSError:
            return values.transpose(1, 2, 0)
        kept = SpooledValues(self._file, self._end, values.shape)
        self._end += values.nbytes
        return kept


class SpooledValues:
    """Values [time, device, metric] of a `Spool`; of an index that names metrics only those are read.

    Attributes:
        shape: (times, devices, metrics).
    """

    def __init__(self, file: Any, offset: int, stored: tuple[int, ...]) -> None:
        self._file, self._offset = file, offset
        metrics, times, devices = stored
        self.shape = (times, devices, metrics)

    def __getitem__(self, key: Any) -> Any:
        whole = slice(None)
        if isinstance(key, tuple) and len(key) == 3 and key[:2] == (whole, whole) and isinstance(key[2], list):
            return np.stack([self._metric(at) for at in key[2]], axis=2)
        return np.asarray(self)[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = np.stack([self._metric(at) for at in range(self.shape[2])], axis=2)
        return found if dtype is None else found.astype(dtype)

    def _metric(self, at: int) -> np.ndarray:
        times, devices, metrics = self.shape
        size = times * devices * 4
        place = self._offset + range(metrics)[at] * size
        read = os.pread(self._file.fileno(), size, place)
        return np.frombuffer(read, np.float32).reshape(times, devices)
