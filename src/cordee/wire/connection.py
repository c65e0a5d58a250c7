"""One end of a connection: sealed frames in and out, without a task or a future per frame."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
import struct
from typing import Any, Callable, Optional, Union

from cordee.core.errors import WireError

MAX_FRAME_BYTES = 16 << 20
MAX_BUFFERED_BYTES = 64 << 20
MAX_GREETING_BYTES = 4096

_MAC_BYTES = 16
_GOODBYE_S = 5.0
_UNANSWERED_MS = 30_000
_EXPLAINED_BYTES = 1 << 20  # that are hashed at most to tell what is wrong with a seal
_EXPLAINED_FRAMES = 256
_U32 = struct.Struct("<I")
_PREFIX = struct.Struct("<II")
_U64 = struct.Struct("<Q")
_encode = json.JSONEncoder(separators=(",", ":")).encode

MessageHandler = Callable[["Connection", "dict[str, Any]", bytes], None]
CloseHandler = Callable[["Connection", Optional[WireError]], None]


class Connection(asyncio.Protocol):
    """One end of a connection; use it from its event loop's thread only.

    Attributes:
        on_message: called as `(connection, message, body)` for every frame, in order. If it raises, the loop's
            exception handler is told and this connection alone ends.
        on_close: called once as `(connection, error)` when a connection that was authenticated ends; error is None
            when one of the two ends closed it on purpose.
        peer_role, peer_name, peer_epoch, peer_address: who the other end is; proved but for the address.
        own_address: by which the other end knows this machine.
        close_reason: the words of the end that closed on purpose.
    """

    def __init__(self, on_message: Optional[MessageHandler] = None, on_close: Optional[CloseHandler] = None) -> None:
        self.on_message = on_message
        self.on_close = on_close
        self.peer_role = ""
        self.peer_name = ""
        self.peer_epoch = 0
        self.peer_address = self.own_address = ""
        self.close_reason: Optional[str] = None
        self._transport: Any = None
        self._pending = bytearray()
        self._needed = 0
        self._limit = MAX_GREETING_BYTES
        self._greet: Optional[Callable[[dict[str, Any]], None]] = None
        self._held = False
        self._ending = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: Optional[WireError] = None
        self._seal: Any = None
        self._sent = 0
        self._unseal: Any = None
        self._received = 0
        self._drained: Optional[asyncio.Future[None]] = None

    # What callers use

    @property
    def authenticated(self) -> bool:
        """Whether both ends have proved that they know the token."""
        return self._seal is not None

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._ending

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were sent but that the kernel has not taken yet."""
        return 0 if self._transport is None else int(self._transport.get_write_buffer_size())

    def send(self, message: dict[str, Any], body: bytes = b"") -> bool:
        """Queue one frame without waiting; return False, with nothing sent, when the connection has ended.

        A peer that leaves more than 64 MiB unread is given up; `buffered_bytes` and `drain` keep a caller below that.

        Raises:
            WireError: the frame is larger than 16 MiB (nothing is sent and the connection lives on).
        """
        if self._ending or self._seal is None:
            return False
        self._write(message, body)
        if self._transport.get_write_buffer_size() > MAX_BUFFERED_BYTES:
            self._fail(WireError(f"{self._peer()} has stopped reading", given=f"{self.buffered_bytes} bytes unread"))
        return True

    async def drain(self) -> None:
        """Wait until the kernel has taken most of what was sent, or the connection has ended."""
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def close(self, reason: str = "") -> None:
        """Say goodbye, send what is queued and end; what still arrives is thrown away.

        A peer that does not take it in 5 s is cut off. `wait_closed` waits until the peer has taken it.
        """
        if self._ending or self._seal is None:
            return
        self.close_reason = reason
        self._write(["goodbye", reason[:1000]], b"")
        self._ending = True
        try:
            self._transport.write_eof()
        except OSError:  # the other end has reset it, and this one does not know yet
            self._transport.abort()
            return
        self._ended.get_loop().call_later(_GOODBYE_S, self._transport.abort)

    def abort(self, reason: str) -> None:
        """End at once, without a goodbye: for a peer that nothing is heard of. `on_close` is told why."""
        if not self._ending:
            self._fail(WireError(reason))

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        await asyncio.shield(self._ended)

    # What asyncio calls

    def connection_made(self, transport: Any) -> None:
        """Start."""
        self._transport = transport
        name = transport.get_extra_info("peername")
        own = transport.get_extra_info("sockname")
        self.peer_address, self.own_address = (str(one[0]) if one else "" for one in (name, own))
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def _end_when_unanswered(self) -> None:
        """Have the kernel end the connection when the other machine has not acknowledged anything for too long."""
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            link = self._transport.get_extra_info("socket")
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)

    def data_received(self, data: bytes) -> None:
        """Take bytes; whole frames are handled at once, straight from `data` where nothing was left over."""
        if self._ending:
            return
        try:
            if not self._pending:
                used = self._take_frames(data)
                if used < len(data) and not self._ending:
                    self._pending += memoryview(data)[used:]
                return
            self._pending += data
            if len(self._pending) >= self._needed:
                self._take_pending()
        except WireError as error:
            self._pending = bytearray()
            self._fail(error)

    def connection_lost(self, error: Optional[BaseException]) -> None:
        """Tell the owner, once."""
        if self._error is None and self.close_reason is None:
            if error is not None:
                self._error = WireError(f"the connection to {self._peer()} failed: {error}")
            else:
                where = " in the middle of a frame" if self._pending else ""
                self._error = WireError(f"{self._peer()} went away{where} without a goodbye")
        self._ending = True
        self._pending = bytearray()
        self.resume_writing()
        self._ended.set_result(None)
        if self._seal is not None and self.on_close is not None:
            self.on_close(self, self._error)

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        if self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The kernel takes bytes again."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    # Frames

    def _take_pending(self) -> None:
        used = self._take_frames(self._pending)
        if self._ending:
            self._pending = bytearray()
        else:
            del self._pending[:used]

    def _take_frames(self, data: Union[bytes, bytearray]) -> int:
        """Handle all whole frames and return the number of bytes that they took."""
        start, size = 0, len(data)
        with memoryview(data) as view:
            while not (self._ending or self._held):
                if size - start < 4:
                    self._needed = 4
                    break
                (length,) = _U32.unpack_from(view, start)
                if length > self._limit:
                    raise WireError("a frame is too large", given=f"{length} bytes", allowed=f"{self._limit} bytes")
                end = start + 4 + length
                if end > size:
                    self._needed = end - start
                    break
                if self._greet is not None:
                    self._greet(_parse(view[start + 4 : end]))
                else:
                    self._open(view, start, end)
                start = end
        return start

    def _open(self, view: memoryview, start: int, end: int) -> None:
        body_end = end - _MAC_BYTES
        if body_end - start < 8:
            raise WireError("a frame is too short to hold a header and a seal", given=f"{end - start} bytes")
        digest = self._unseal.copy()
        digest.update(_U64.pack(self._received))
        digest.update(view[start:body_end])
        if not hmac.compare_digest(digest.digest(), view[body_end:end]):
            raise WireError(self._explain(view, start, end), next="the connection cannot be trusted and is closed")
        self._received += 1
        header_end = start + 8 + _PREFIX.unpack_from(view, start)[1]
        if header_end > body_end:
            raise WireError("a frame's header is longer than the frame", given=f"{header_end - start - 8} bytes")
        message = _parse(view[start + 8 : header_end], goodbye=True)
        if isinstance(message, list):
            self.close_reason = str(message[1])
            self._ending = True
            self._transport.close()
        elif self.on_message is None:
            raise WireError("a message came that nobody here listens for")
        else:
            self._hand_over(self.on_message, message, bytes(view[header_end:body_end]))

    def _hand_over(self, on_message: MessageHandler, message: dict[str, Any], body: bytes) -> None:
        try:
            on_message(self, message, body)
        except Exception as error:  # asyncio itself would say nothing of an OSError
            what = f"the message {message.get('t')!r} from {self._peer()} could not be handled"
            self._ended.get_loop().call_exception_handler({"message": what, "exception": error, "protocol": self})
            self._fail(WireError(f"{what}: {type(error).__name__}: {error}"))

    def _explain(self, view: memoryview, start: int, end: int) -> str:
        """Return the cause of a wrong seal: another frame's place in the order, or changed bytes.

        The places nearest to the expected one are tried, as many as their hashing is cheap: who sends rubbish must not have
        the loop stand still.
        """
        most = min(_EXPLAINED_FRAMES, _EXPLAINED_BYTES // (2 * (end - start)))
        for counter in range(max(0, self._received - most), self._received + most):
            digest = self._unseal.copy()
            digest.update(_U64.pack(counter))
            digest.update(view[start : end - _MAC_BYTES])
            if hmac.compare_digest(digest.digest(), view[end - _MAC_BYTES : end]):
                kind = "was replayed" if counter < self._received else "came before those that precede it"
                return f"frame {counter} {kind} (expected frame {self._received})"
        cause = "was changed on its way" if most else "was changed on its way or is not the one that was expected"
        return f"frame {self._received} {cause}: its seal does not match"

    def _write(self, message: Any, body: bytes) -> None:
        header = _encode(message).encode()
        length = 4 + len(header) + len(body) + _MAC_BYTES
        if length > MAX_FRAME_BYTES:
            raise WireError("a frame is too large", given=f"{length} bytes", allowed=f"{MAX_FRAME_BYTES} bytes")
        frame = b"".join((_PREFIX.pack(length, len(header)), header, body))
        digest = self._seal.copy()
        digest.update(_U64.pack(self._sent))
        digest.update(frame)
        self._sent += 1
        self._transport.write(frame + digest.digest())

    def _fail(self, error: WireError) -> None:
        self._error = self._error or error
        self._ending = True
        self._transport.abort()

    def _peer(self) -> str:
        return f"{self.peer_role} {self.peer_name}" if self.peer_name else f"the peer at {self.peer_address}"

    # Handshake

    def _say(self, greeting: dict[str, Any]) -> None:
        data = json.dumps(greeting).encode()
        self._transport.write(_U32.pack(len(data)) + data)

    def _trust(self, sending: bytes, receiving: bytes) -> None:
        """Switch to sealed frames."""
        self._seal = hashlib.blake2b(key=sending, digest_size=_MAC_BYTES)
        self._unseal = hashlib.blake2b(key=receiving, digest_size=_MAC_BYTES)
        self._limit = MAX_FRAME_BYTES
        self._greet = None


def _parse(data: memoryview, goodbye: bool = False) -> Any:
    try:
        message = json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame's header is not JSON: {type(error).__name__}") from None
    if isinstance(message, dict) or (goodbye and isinstance(message, list) and len(message) == 2):
        return message
    raise WireError("a frame's header is not a JSON object", given=type(message).__name__)
