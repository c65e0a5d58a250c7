"""From a document or a table to an HTTP answer: form, compression, and 304 for what the client has already."""

from __future__ import annotations

import hashlib
import zlib
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cordee.web.tables import ARROW_TYPE, FORMATS, FRAME_TYPE, JSON_TYPE, Table, encode, encode_json

if TYPE_CHECKING:
    from fastapi import Request, Response

_LEAST_BYTES = 2048
_PROBE_BYTES = 32 << 10
_PAYS = 0.75


class Format(StrEnum):
    """How a table of numbers travels."""

    frame = "frame"
    json = "json"
    arrow = "arrow"


def document_answer(request: Request, document: Any) -> Response:
    """Return a document as JSON, with an ETag of its content."""
    return _answer(request, encode_json(document), JSON_TYPE)


def table_answer(request: Request, table: Table, form: Format | None) -> Response:
    """Return a table in the form that was asked for by `format` or by the header Accept; JSON unless said otherwise.

    Raises:
        NotAcceptable: Arrow is asked for and pyarrow is not installed.
    """
    chosen = form.value if form is not None else _accepted(request)
    return _answer(request, encode(table, chosen), FORMATS[chosen])


def unchanged(request: Request, tag: str) -> Response | None:
    """Return 304 where the client has what `tag` stands for, before any work is done."""
    from fastapi import Response

    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept, Accept-Encoding"}
    return Response(status_code=304, headers=headers) if _has(request, tag) else None


def _answer(request: Request, data: bytes, media_type: str) -> Response:
    from fastapi import Response

    tag = f'W/"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept, Accept-Encoding"}
    if _has(request, tag):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", "") and _pays(data):
        data, headers["Content-Encoding"] = _gzip(data), "gzip"
    return Response(data, media_type=media_type, headers=headers)


def _has(request: Request, tag: str) -> bool:
    given = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    return tag.removeprefix("W/") in given


def _accepted(request: Request) -> str:
    accept = request.headers.get("accept", "")
    if FRAME_TYPE in accept:
        return "frame"
    return "arrow" if ARROW_TYPE in accept else "json"


def _pays(data: bytes) -> bool:
    """Return whether compressing makes it clearly smaller, by a piece from its middle: noise in float32 hardly shrinks."""
    if len(data) < _LEAST_BYTES:
        return False
    begin = max(0, len(data) // 2 - _PROBE_BYTES // 2)
    piece = data[begin : begin + _PROBE_BYTES]
    return len(zlib.compress(piece, 1)) < _PAYS * len(piece)


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()
