"""What the server refuses, and the HTTP status of every error of Cordée; one table."""

from __future__ import annotations

from cordee.core.errors import CordeeError, DocumentError, RunFolderError, RunNotFound, UsageError


class NotFound(UsageError):
    """There is nothing under this address."""

    kind = "not_found"


class NotAllowed(CordeeError):
    """Who asks has not shown that they may."""

    kind = "not_allowed"


class Forbidden(CordeeError):
    """The request comes from where none may come from: another site, another name of this host."""

    kind = "forbidden"


class ServerBusy(CordeeError):
    """Too much is asked at once; the same question is answered later."""

    kind = "busy"


class NotAcceptable(CordeeError):
    """This table cannot be had in the form that was asked for."""

    kind = "not_acceptable"


_STATUS: tuple[tuple[type[CordeeError], int], ...] = (
    (RunNotFound, 404),
    (NotFound, 404),
    (NotAllowed, 401),
    (Forbidden, 403),
    (NotAcceptable, 406),
    (ServerBusy, 503),
    (UsageError, 400),
    (DocumentError, 409),
    (RunFolderError, 409),
)


def status_of(error: CordeeError) -> int:
    """Return the HTTP status of an error: 409 for a folder that cannot be read as it is, 500 for what nobody foresaw."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
