"""The connecting end."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Optional

from cordee.core.errors import WireError
from cordee.wire.connection import CloseHandler, Connection, MessageHandler
from cordee.wire.handshake import GREETING_S, PROTOCOL, is_proof, is_text, prove, version_text


class _Outgoing(Connection):
    """The client's end of a connection."""

    def __init__(
        self, token: bytes, role: str, name: str, epoch: int, on_message: MessageHandler, on_close: CloseHandler
    ) -> None:
        super().__init__(on_message, on_close)
        self._token = token
        self._about: list[Any] = [PROTOCOL, "", os.urandom(16).hex(), role, name, epoch]
        self._greet = self._challenged
        self.peer_epoch = epoch
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, error: Optional[BaseException]) -> None:
        super().connection_lost(error)
        if not self.ready.done():
            self.ready.set_exception(self._error or WireError("the connection ended during the handshake"))

    def _challenged(self, hello: dict[str, Any]) -> None:
        version, nonce = hello.get("cordee"), hello.get("nonce")
        _, _, own, role, name, epoch = self._about
        if version != PROTOCOL:
            self._say({"cordee": PROTOCOL})
            raise WireError(version_text(version), next="use the same version of Cordée on both ends")
        if not is_text(nonce, 64):
            raise WireError("the server's greeting holds no nonce")
        self._about[1] = nonce
        self._greet = self._verify
        proof = prove(self._token, "client", self._about).hex()
        self._say({"cordee": PROTOCOL, "role": role, "name": name, "nonce": own, "epoch": epoch, "proof": proof})

    def _verify(self, answer: dict[str, Any]) -> None:
        if "error" in answer:
            raise WireError(f"the server refused: {str(answer['error'])[:500]}", next="read the rendezvous file again")
        if not is_proof(answer.get("proof"), prove(self._token, "server", self._about)):
            raise WireError("the server does not know the token", next="someone else listens at this address")
        self.peer_role, self.peer_name = "server", self.peer_address
        self._trust(*(prove(self._token, label, self._about) for label in ("c2s", "s2c")))
        if self._about[3] == "agent":
            self._end_when_unanswered()
        self._held = True
        self._transport.pause_reading()
        self.ready.set_result(None)

    def release(self) -> None:
        """Deliver the messages that came while the caller of `connect` had no connection to know them by."""
        self._held = False
        self._transport.resume_reading()
        pending, self._pending = bytes(self._pending), bytearray()
        self.data_received(pending)

    def give_up(self) -> None:
        """Forget a handshake that did not end in time."""
        self.ready.cancel()
        if self._transport is not None:
            self._ending = True
            self._transport.abort()


async def connect(
    host: str,
    port: int,
    token: bytes,
    role: str,
    name: str,
    *,
    epoch: int,
    on_message: MessageHandler,
    on_close: CloseHandler,
    timeout: float = GREETING_S,
) -> Connection:
    """Connect to a server and authenticate both ends; no handler is called before this has returned.

    Args:
        role: `agent` or `client`.
        name: the node's or the client's name.
        epoch: the epoch of the supervisor that is meant, from the rendezvous file.
        timeout: seconds for all of it.

    Raises:
        WireError: nobody listens there, it did not answer in time, it refused, or one end could not prove that it knows
            the token. `on_close` is not called then.
    """
    loop = asyncio.get_running_loop()
    protocol = _Outgoing(token, role, name, epoch, on_message, on_close)

    async def establish() -> None:
        await loop.create_connection(lambda: protocol, host, port)
        await protocol.ready

    where = f"{host}:{port}"
    try:
        await asyncio.wait_for(establish(), timeout)
    except asyncio.TimeoutError:
        raise WireError(f"no answer from {where} within {timeout:g} s", given=where) from None
    except OSError as error:
        raise WireError(f"cannot connect to {where}: {error.strerror or error}", given=where) from error
    finally:
        if not protocol.authenticated:
            protocol.give_up()
    loop.call_soon(protocol.release)
    return protocol
