"""What people ask of a run that goes on: left in its folder, where whoever leads it finds it, and told to them at once if they can be reached."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from contextlib import suppress
from typing import Any

from cordee import wire
from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder, write_atomically
from cordee.wire.messages import Requests, encode

_CALL_S = 1.0


def leave_request(folder: RunFolder, request: dict[str, Any]) -> None:
    """Ask a run's supervisor for something; one that cannot be reached from here finds it within seconds.

    Args:
        request: `{"request": "cancel", ...}`, `{"request": "stacks"}` or `{"request": "profile", ...}`.

    Raises:
        RunFolderError: the disk does not take it.
    """
    name = f"{request['request']}-{secrets.token_hex(4)}.json"
    write_atomically(folder.requests / name, json.dumps(request), below=folder.root)
    with suppress(OSError, TimeoutError, CordeeError):
        asyncio.run(asyncio.wait_for(_call(folder), _CALL_S))


async def _call(folder: RunFolder) -> None:
    place = wire.read_rendezvous(folder.rendezvous)
    connection = await wire.connect(
        place.address,
        place.port,
        place.token,
        "client",
        f"request-{os.getpid()}",
        epoch=place.epoch,
        on_message=lambda *_: None,
        on_close=lambda *_: None,
    )
    connection.send(encode(Requests()))
    connection.close()
    await connection.wait_closed()
