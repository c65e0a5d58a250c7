"""The web server as routes of systems know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cordee.runs.folder import RunFolder

if TYPE_CHECKING:
    from fastapi import Request, Response

    from cordee.telemetry.store.reader import Run


class ServerPart(Protocol):
    """What a system keeps for as long as the server lives."""

    def close(self) -> None:
        """End what it has started; the server ends."""


P = TypeVar("P", bound=ServerPart)


class Serving(Protocol):
    """What a route may ask of the server that it was called by; a run is named by its id.

    Every method that takes a run raises RunNotFound where there is none of that id.
    """

    def folder(self, run: str) -> RunFolder:
        """Return a run's folder."""

    def ended(self, run: str) -> bool:
        """Return whether nothing will be added to a run any more."""

    def answer(self, request: Request, document: Any) -> Response:
        """Return a document as JSON."""

    def answer_of(self, request: Request, run: str, make: Callable[[Run], Any]) -> Response:
        """Return what `make` says of a run as JSON; it is called once for each state of its folder, one at a time."""

    def part(self, make: Callable[[], P]) -> P:
        """Return what `make` makes: made when it is asked for first, closed with the server."""


def serving(request: Request) -> Serving:
    """Return the server that a request came to."""
    found: Serving = request.app.state.serving
    return found
