"""What a service answers its owner: asked before it is moved, and after."""

from __future__ import annotations

import base64
import hashlib
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from cordee.systems.services.blueprint import LoadedBlueprint
from cordee.systems.services.deployment import status_of
from cordee.systems.services.instance import ServiceFailing, ServiceFolder

_TIMEOUT_S = 60.0
_REFUSED = (401, 403)


class ServiceReply(NamedTuple):
    """What was asked, and what came back: the status and the digest of the body."""

    path: str
    status: int
    digest: str
    bytes: int


def replies(folder: ServiceFolder, loaded: LoadedBlueprint, paths: list[str]) -> list[ServiceReply]:
    """Return what a service answers its owner at these paths of its first HTTP endpoint.

    Args:
        paths: none: what `[closed]` asks, which shows data.

    Raises:
        ServiceFailing: it cannot be asked.
    """
    blueprint = loaded.blueprint
    closed = blueprint.closed.path if blueprint.closed is not None and blueprint.closed.command is None else None
    http = [one for one in status_of(folder).endpoints if one["url"].startswith("http")]
    if not http:
        return []
    asked = paths or ([closed] if closed else [blueprint.ready.path or "/"])
    return [_reply(http[0]["url"], path, http[0]["token_file"]) for path in asked]


def _reply(url: str, path: str, token_file: str | None) -> ServiceReply:
    secret = Path(token_file).read_text().strip() if token_file else ""
    basic = base64.b64encode(f"admin:{secret}".encode()).decode()
    given = [{"Authorization": f"Bearer {secret}"}, {"Authorization": f"Basic {basic}"}] if secret else [{}]
    for headers in given:
        request = urllib.request.Request(url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        except OSError as error:
            raise ServiceFailing(f"it does not answer at {path}: {error}", given=url) from error
        if status not in _REFUSED:
            break
    return ServiceReply(path, status, hashlib.sha256(body).hexdigest(), len(body))


def differences(before: list[ServiceReply], after: list[ServiceReply]) -> str:
    """Return what differs, in words; empty: nothing."""
    return "; ".join(
        f"{one.path}: {one.status} with {one.bytes} bytes before, {other.status} with {other.bytes} bytes after"
        for one, other in zip(before, after, strict=True)
        if one != other
    )
