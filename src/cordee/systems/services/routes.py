"""The services of the user whose server it is, for pages: how each is and why, where it is asked, what it has used this month."""

from __future__ import annotations

import threading
import time
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from pydantic import Field

from cordee.core.clock import monotonic, unix_s
from cordee.core.web.models import Answer
from cordee.systems.services.accounts import summed, used_days
from cordee.systems.services.deployment import ServiceStatus, all_status
from cordee.systems.services.door.folder import DoorFolder
from cordee.telemetry.shown.server_parts import serving

router = APIRouter(prefix="/api", tags=["site"])
# However many pages ask: schedulers are asked by `all_status`, and the samples of what runs are read for its use.
_STATUS_S, _USE_S = 2.0, 60.0
# Files with secrets and paths of this machine are of no use to who looks by a browser.
_LEFT_OUT = ("client_file", "run", "asleep")


class ServicesAnswer(Answer):
    """What services there are, and what they have used."""

    services: list[dict[str, Any]] = Field(
        description="`name`, `target`, `cluster`, `revision`, `owner`, `project`, `state`, `ready`, `why`, `node`, `endpoints`, `unused_s` (nobody was connected for so long) and `used`, this month."
    )
    since: str = Field(description="From when on `used` and `projects` count: the first day of this month, UTC.")
    projects: list[dict[str, Any]] = Field(
        description="By `project`: `hours`, `gpu_hours`, `energy_joules`, `requests`, ..., removed services, too."
    )
    door: bool = Field(description="Whether the front door is open.")


class ShownServices:
    """What is shown of services, read at most so often."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._document: dict[str, Any] = {}
        self._used: dict[str, Any] = {}
        self._read_at = self._used_at = float("-inf")

    def close(self) -> None:
        """There is nothing to close."""

    def document(self) -> dict[str, Any]:
        """Return what `ServicesAnswer` describes."""
        with self._turn:
            if monotonic() - self._used_at > _USE_S:
                self._used, self._used_at = _used(), monotonic()
            if monotonic() - self._read_at > _STATUS_S:
                rows = [self._row(one) for one in all_status()]
                self._document = {"services": rows, "door": bool(DoorFolder().keeper())}
                self._read_at = monotonic()
            used = {name: self._used[name] for name in ("since", "projects")}
            return {**self._document, **used}

    def _row(self, one: ServiceStatus) -> dict[str, Any]:
        document = {key: value for key, value in one.document().items() if key not in _LEFT_OUT}
        endpoints = [
            {"name": end["name"], "url": end["url"], "web": urlsplit(end["url"]).scheme in ("http", "https")}
            for end in one.endpoints
        ]
        return {**document, "endpoints": endpoints, "used": self._used["services"].get(one.name)}


def _used() -> dict[str, Any]:
    since = time.strftime("%Y-%m-01", time.gmtime(unix_s()))
    days = used_days(since=since)
    projects = [{"project": name, **use.document()} for name, use in summed(days, "project").items()]
    services = {name: use.document() for name, use in summed(days, "service").items()}
    return {"since": since, "projects": projects, "services": services}


@router.get("/services", response_model=ServicesAnswer)
def services(request: Request) -> Response:
    """Return the services of the user whose server this is; credentials are in none of it."""
    server = serving(request)
    return server.answer(request, server.part(ShownServices).document())
