"""The authenticated framed protocol between a supervisor, its agents and its clients, over one TCP connection.

Handshake (u32 length and JSON, at most 4 KiB each, 5 s in all): the server sends a nonce; the client answers with its
own nonce, its role, name and epoch, and an HMAC over all of that; the server answers with its HMAC. Both have then
proved that they know the token, which never travels. Afterwards every frame is

    u32 length of the rest | u32 header length | header (JSON) | body | 16 bytes keyed blake2b over (u64 counter, frame)

little-endian, with a key and a counter per direction. The counter is not sent, so a frame that is repeated, left out,
moved or changed ends the connection. Frames are protected against change, not against being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordee.wire.client import connect
    from cordee.wire.connection import Connection
    from cordee.wire.handshake import PROTOCOL, ROLES
    from cordee.wire.ports import pick_port, pick_ports
    from cordee.wire.rendezvous import Rendezvous, new_token, read_rendezvous, write_rendezvous
    from cordee.wire.server import Server, serve

__all__ = [
    "PROTOCOL",
    "ROLES",
    "Connection",
    "Rendezvous",
    "Server",
    "connect",
    "new_token",
    "pick_port",
    "pick_ports",
    "read_rendezvous",
    "serve",
    "write_rendezvous",
]

# A rank and the command line use rooms beside these, and are to start without asyncio and ssl.
_HOMES = {
    "connect": "client",
    "Connection": "connection",
    "PROTOCOL": "handshake",
    "ROLES": "handshake",
    "pick_port": "ports",
    "pick_ports": "ports",
    "Rendezvous": "rendezvous",
    "new_token": "rendezvous",
    "read_rendezvous": "rendezvous",
    "write_rendezvous": "rendezvous",
    "Server": "server",
    "serve": "server",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
