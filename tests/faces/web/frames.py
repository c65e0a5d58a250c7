"""Reads frames as the pages do."""

from __future__ import annotations

import json
import math
import struct

import numpy as np

from cordee.faces.web.answers import tables


def decode_frame(data: bytes) -> tables.NumberTable:
    """Return what a frame holds.

    Raises:
        ValueError: it is none.
    """
    if data[:4] != tables.MAGIC:
        raise ValueError("this is no frame")
    (length,) = struct.unpack_from("<I", data, 4)
    facts = json.loads(data[8 : 8 + length])
    arrays = {}
    for about in facts.pop("arrays"):
        count = math.prod(about["shape"])
        found = np.frombuffer(data, about["dtype"], count, 8 + length + about["offset"])
        arrays[about["name"]] = found.reshape(about["shape"])
    return tables.NumberTable(arrays, facts)
