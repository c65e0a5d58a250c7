"""Raw rows of the block log as arrays: single precision as they are written now, double as they were before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

_TIME_BYTES = 8


def decode_rows(rows: Sequence[bytes], devices: int, metrics: int) -> tuple[np.ndarray, np.ndarray]:
    """Return times float64 [n] and values [n, devices, metrics], float64 where a row has them; rows of other lengths are left out.

    Args:
        rows: as `cordee.telemetry.store.unsealed.tail.TailPart` keeps them.
    """
    pieces = []
    for length, same in groupby(rows, len):
        if length == _TIME_BYTES + 4 * devices * metrics:
            kind = "<f4"
        elif length == _TIME_BYTES + 8 * devices * metrics:
            kind = "<f8"
        else:
            continue
        table = np.frombuffer(b"".join(same), np.dtype([("time", "<f8"), ("values", kind, (devices, metrics))]))
        pieces.append((table["time"], table["values"]))
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return np.zeros(0), np.zeros((0, devices, metrics), dtype=np.float32)
    return np.concatenate([times for times, _ in pieces]), np.concatenate([values for _, values in pieces])
