"""`/api/runs/{run}/live`: server-sent events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from cordee.faces.web.answers.errors import ServerBusy
from cordee.faces.web.server import server_of

router = APIRouter(prefix="/api/runs/{run}")


@router.get("/live")
async def live(request: Request, run: str, last_event_id: Annotated[str | None, Header()] = None) -> Response:
    """Follow a run: events `state`, `samples`, `logged`, `finding`, `ping`."""
    server = server_of(request)
    server.shelf.folder(run)
    if server.hub.full:
        raise ServerBusy("too many streams are open", next="close some pages")
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(server.hub.stream(run, last_event_id), media_type="text/event-stream", headers=headers)
