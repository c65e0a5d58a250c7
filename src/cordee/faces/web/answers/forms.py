"""From a document or a table to an HTTP answer: its form, compression, and 304 for what the client has already."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import AsyncIterator, Callable, Hashable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from cordee.faces.web.answers.cache import CachedBody
from cordee.faces.web.answers.tables import ARROW_TYPE, FORMATS, FRAME_TYPE, JSON_TYPE, NumberTable, encode, encode_json
from cordee.faces.web.server import server_of

if TYPE_CHECKING:
    from cordee.faces.web.runs.open_run import Reading

_LEAST_BYTES = 2048
_PROBE_BYTES = 32 << 10
_PAYS = 0.75
_PIECE_BYTES = 256 << 10


class AnswerFormat(StrEnum):
    """How a table of numbers travels."""

    frame = "frame"
    json = "json"
    arrow = "arrow"


def document_answer(request: Request, document: Any) -> Response:
    """Return a document as JSON, with an ETag of its content."""
    data = encode_json(document)
    tag = _tag(data)
    return _unchanged(request, tag) or _respond(request, packed(data), JSON_TYPE, tag)


def run_document_answer(
    request: Request, reading: Reading, make: Callable[[], Any], *, often: Hashable = None
) -> Response:
    """Return what `make` gives as JSON; it is called once for each state of the run's folder, whoever asks.

    Args:
        often: what the document depends on beside the folder.
    """
    tag = _state_tag(request, reading, JSON_TYPE, often)
    answer = _unchanged(request, tag)
    if answer is None:
        body = server_of(request).cache.get(tag, lambda: packed(encode_json(make())))
        answer = _respond(request, body, JSON_TYPE, tag)
    return answer


def table_answer(
    request: Request, reading: Reading, form: AnswerFormat | None, make: Callable[[], NumberTable]
) -> Response:
    """Return a table in the form that was asked for by `format` or by the header Accept; JSON unless said otherwise.

    Raises:
        NotAcceptable: Arrow is asked for and pyarrow is not installed.
    """
    chosen = form.value if form is not None else _accepted(request)
    tag = _state_tag(request, reading, FORMATS[chosen])
    answer = _unchanged(request, tag)
    if answer is None:
        body = server_of(request).cache.get(tag, lambda: packed(encode(make(), chosen)))
        answer = _respond(request, body, FORMATS[chosen], tag)
    return answer


def packed(data: bytes) -> CachedBody:
    """Return bytes with the same compressed, where that makes them clearly smaller: noise in float32 hardly shrinks."""
    if len(data) < _LEAST_BYTES:
        return CachedBody(data)
    begin = max(0, len(data) // 2 - _PROBE_BYTES // 2)
    piece = data[begin : begin + _PROBE_BYTES]
    if len(zlib.compress(piece, 1)) > _PAYS * len(piece):
        return CachedBody(data)
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return CachedBody(data, packer.compress(data) + packer.flush())


def _state_tag(request: Request, reading: Reading, media_type: str, often: Hashable = None) -> str:
    about = (reading.folder.root, reading.stamp(), request.url.path, request.url.query, media_type, often)
    return _tag(repr(about).encode())


def _tag(data: bytes) -> str:
    return f'W/"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'


def _headers(tag: str) -> dict[str, str]:
    return {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept, Accept-Encoding"}


def _unchanged(request: Request, tag: str) -> Response | None:
    given = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    return Response(status_code=304, headers=_headers(tag)) if tag.removeprefix("W/") in given else None


def _respond(request: Request, body: CachedBody, media_type: str, tag: str) -> Response:
    headers, data = _headers(tag), body.data
    if body.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"], data = "gzip", body.packed
    if len(data) <= _PIECE_BYTES:
        return Response(data, media_type=media_type, headers=headers)
    headers["Content-Length"] = str(len(data))
    return StreamingResponse(_pieces(data), media_type=media_type, headers=headers)


async def _pieces(data: bytes) -> AsyncIterator[memoryview]:
    """Yield large bodies in pieces, so that a slow client holds one of them and not a copy of the whole."""
    view = memoryview(data)
    for begin in range(0, len(view), _PIECE_BYTES):
        yield view[begin : begin + _PIECE_BYTES]


def _accepted(request: Request) -> str:
    accept = request.headers.get("accept", "")
    if FRAME_TYPE in accept:
        return "frame"
    return "arrow" if ARROW_TYPE in accept else "json"
