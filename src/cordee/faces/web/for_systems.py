"""The server as it shows itself to the routes of systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request, Response

from cordee.faces.web.answers.forms import document_answer, run_document_answer
from cordee.faces.web.server import RunsServer
from cordee.runs.folder import RunFolder
from cordee.telemetry.shown.server_parts import P, Serving
from cordee.telemetry.store.reader import Run


class ForSystems(Serving):
    """What routes of systems may ask of a server."""

    def __init__(self, server: RunsServer) -> None:
        self._server = server

    def folder(self, run: str) -> RunFolder:
        return self._server.shelf.reading(run).folder

    def ended(self, run: str) -> bool:
        return self._server.shelf.reading(run).ended()

    def answer(self, request: Request, document: Any) -> Response:
        return document_answer(request, document)

    def answer_of(self, request: Request, run: str, make: Callable[[Run], Any]) -> Response:
        reading = self._server.shelf.reading(run)

        def made() -> Any:
            with reading.run() as opened:
                return make(opened)

        return run_document_answer(request, reading, made)

    def part(self, make: Callable[[], P]) -> P:
        return self._server.part(make)
