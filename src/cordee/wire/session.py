"""Messages that outlive their connection: numbered, kept until the other end has taken them, taken once and in order.

Both ends of a session hold one of these. A message that must arrive gets the next number (`n`); everything that is sent
tells the highest number taken so far (`seen`), and what that covers is forgotten. When a connection breaks the session
goes on over the next one: what was not acknowledged is sent again, and what comes twice is passed over. Messages without
a number are lost with their connection.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Iterator, Optional

from cordee.core.errors import WireError

MOST_MESSAGES = 20_000
MOST_BYTES = 32 << 20
_OWED_MESSAGES = 64
_OWED_BYTES = 256 << 10
_HEADER_BYTES = 128
_ITEM_BYTES = 16

Message = dict[str, Any]


class Outbox:
    """Numbered messages that are kept until they are acknowledged.

    Args:
        most, most_bytes: how many messages, and about how many bytes, may be kept.

    Attributes:
        last: the number given last, 0 before the first.
        acknowledged: the highest number that the other end has taken.
        bytes: about how much is kept.
    """

    def __init__(self, most: int = MOST_MESSAGES, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: deque[tuple[Message, bytes]] = deque()
        self.last = self.acknowledged = self.bytes = 0

    def add(self, message: Message, body: bytes = b"") -> Message:
        """Keep a message and return it with its number.

        Raises:
            WireError: there is no room; nothing is kept, and the session cannot go on.
        """
        size = _about_bytes(message, body)
        if len(self._kept) >= self._most or self.bytes + size > self._most_bytes:
            raise WireError(
                "too much is waiting to be acknowledged",
                given=f"{len(self._kept)} messages, {self.bytes} bytes",
                allowed=f"{self._most} messages, {self._most_bytes} bytes",
            )
        self.last += 1
        numbered = {**message, "n": self.last}
        self._kept.append((numbered, body))
        self.bytes += size
        return numbered

    def acknowledge(self, number: int) -> None:
        """Forget all messages up to this number.

        Raises:
            WireError: no such message was ever given.
        """
        if number > self.last:
            raise WireError("a message was acknowledged that was never sent", given=number, allowed=f"0-{self.last}")
        while self.acknowledged < number:
            message, body = self._kept.popleft()
            self.bytes -= _about_bytes(message, body)
            self.acknowledged += 1

    def __iter__(self) -> Iterator[tuple[Message, bytes]]:
        """Yield what is kept, in order."""
        return iter(list(self._kept))


class Inbox:
    """Takes each number once and in order.

    Attributes:
        last: the highest number taken, 0 before the first.
    """

    def __init__(self) -> None:
        self.last = 0

    def take(self, number: int) -> bool:
        """Return whether the message is new; one that came before is not.

        Raises:
            WireError: the one before it has not come.
        """
        if number > self.last + 1:
            raise WireError("a message is missing", given=f"message {number}", allowed=f"message {self.last + 1}")
        if number <= self.last:
            return False
        self.last = number
        return True


class Session:
    """One end of a session.

    Args:
        identifier: what both ends call it; the listening end gives it, never the same twice.

    Attributes:
        outbox, inbox: what is on its way there, and what has come from there.
    """

    def __init__(self, identifier: str, outbox: Optional[Outbox] = None) -> None:
        self.identifier = identifier
        self.outbox = Outbox() if outbox is None else outbox
        self.inbox = Inbox()
        self._owed_messages = self._owed_bytes = 0

    @property
    def untouched(self) -> bool:
        """Whether the other end can hold nothing of it yet: it has neither said nor acknowledged anything."""
        return self.inbox.last == 0 and self.outbox.acknowledged == 0

    @property
    def owes(self) -> bool:
        """Whether so much has come that it is time to acknowledge it, if nothing else is to be said."""
        return self._owed_messages >= _OWED_MESSAGES or self._owed_bytes >= _OWED_BYTES

    def stamped(self, message: Message) -> Message:
        """Return a message as it is sent now: with the acknowledgement of what has come."""
        self._owed_messages = self._owed_bytes = 0
        return {**message, "seen": self.inbox.last}

    def take(self, message: Message, body_bytes: int = 0) -> bool:
        """Take what a message acknowledges and return whether it is to be handled.

        Raises:
            WireError: the two ends do not agree on what was sent.
        """
        self.outbox.acknowledge(_number(message, "seen", 0))
        if "n" not in message:
            return True
        self._owed_messages += 1
        self._owed_bytes += body_bytes
        return self.inbox.take(_number(message, "n", 0))


def _number(message: Message, name: str, default: int) -> int:
    number = message.get(name, default)
    if not isinstance(number, int) or number < 0:
        raise WireError(f"a message's {name!r} is not a number", given=repr(number)[:50], allowed="0, 1, 2 ...")
    return number


def _about_bytes(message: Message, body: bytes) -> int:
    """Return about how much a message holds, without encoding it."""
    items = sum(len(value) for value in message.values() if isinstance(value, (str, list, tuple, dict)))
    return len(body) + _HEADER_BYTES + _ITEM_BYTES * items
