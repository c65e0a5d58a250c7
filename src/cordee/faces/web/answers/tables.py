"""Tables of numbers as bytes: the frame that browsers decode without copying, Arrow for programs, JSON for people.

A frame is `CoF1`, the header's length as u32 (little-endian), the header as UTF-8 JSON padded with spaces so that the payload
begins at a multiple of 8, and the payload. The header holds `arrays`, a list of `{name, dtype, shape, offset}` (offset in bytes from
the payload's beginning, a multiple of 8), and the table's other facts under the same keys as in JSON.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.core.stats import finite_document
from cordee.faces.web.answers.errors import NotAcceptable

if TYPE_CHECKING:
    import numpy as np

FRAME_TYPE = "application/vnd.cordee.frame"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
JSON_TYPE = "application/json"
FORMATS = {"frame": FRAME_TYPE, "arrow": ARROW_TYPE, "json": JSON_TYPE}
MAGIC = b"CoF1"


@dataclass(frozen=True)
class NumberTable:
    """Arrays of numbers with what is to be known of them.

    Attributes:
        arrays: numpy arrays by name; float64 and integers travel as f64, float32 as f32; NaN is missing.
        facts: everything else, ready for JSON but for numbers that are none.
    """

    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, Any] = field(default_factory=dict)


def encode(table: NumberTable, form: str) -> bytes:
    """Return a table in one of `FORMATS`.

    Raises:
        NotAcceptable: Arrow is asked for and pyarrow is not installed.
    """
    if form == "frame":
        return encode_frame(table)
    if form == "arrow":
        return encode_arrow(table)
    lists = {name: _numbers(array.tolist()) for name, array in table.arrays.items()}
    return encode_json({**table.facts, **lists})


def encode_frame(table: NumberTable) -> bytes:
    """Return a table as a frame."""
    described, pieces, offset = [], [], 0
    for name, array in table.arrays.items():
        data, dtype = _little(array)
        described.append({"name": name, "dtype": dtype, "shape": list(array.shape), "offset": offset})
        padding = -len(data) % 8
        pieces += [data, bytes(padding)]
        offset += len(data) + padding
    header = encode_json({"arrays": described, **table.facts})
    header += b" " * (-(len(MAGIC) + 4 + len(header)) % 8)
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *pieces])


def encode_arrow(table: NumberTable) -> bytes:
    """Return a table as an Arrow stream: a column per array, a list column per two-dimensional one, facts as metadata.

    The times of a heat map are no column beside its rows, not even where there are as many: with a two-dimensional array all
    others are in the metadata `facts` as JSON.

    Raises:
        NotAcceptable: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise NotAcceptable(
            "Arrow needs pyarrow where the server runs",
            given="format=arrow",
            allowed=["frame", "json"],
            next="pip install 'cordee[parquet]', or ask for format=json",
        ) from None
    dimensions = max((array.ndim for array in table.arrays.values()), default=1)
    rows = max((array.shape[0] for array in table.arrays.values() if array.ndim == dimensions), default=0)
    columns, facts = {}, dict(table.facts)
    for name, array in table.arrays.items():
        if array.ndim != dimensions or array.shape[0] != rows:
            facts[name] = _numbers(array.tolist())
        elif array.ndim == 2:
            flat = pa.array(array.reshape(-1))
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, array.shape[1]) if array.size else pa.array([])
        else:
            columns[name] = pa.array(array)
    made = pa.table(columns).replace_schema_metadata({"facts": encode_json(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def encode_json(document: Any) -> bytes:
    """Return a document as JSON; numbers that are none become null, what JSON does not know becomes text."""
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False, default=str).encode()
    except ValueError:
        return json.dumps(finite_document(document), separators=(",", ":"), allow_nan=False, default=str).encode()


def _numbers(values: list[Any]) -> list[Any]:
    return [
        _numbers(value)
        if isinstance(value, list)
        else value
        if not isinstance(value, float) or math.isfinite(value)
        else None
        for value in values
    ]


def _little(array: np.ndarray) -> tuple[bytes, str]:
    import numpy as np

    dtype = "<f4" if array.dtype == np.float32 else "<f8"
    return np.ascontiguousarray(array, dtype=dtype).tobytes(), dtype
