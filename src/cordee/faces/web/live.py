"""Following runs for those who watch: one poller per run however many listen, none when nobody does.

Every kind of event keeps only its newest content for each listener, so that a slow one holds no queue and gets what is true now.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from cordee.core.errors import CordeeError
from cordee.faces.web.answers.tables import encode_json
from cordee.faces.web.page_follower import PageFollower, RunLook
from cordee.faces.web.runs.library import RunLibrary
from cordee.machine.foreign_files import parse_json

POLL_S = 0.5
PING_S = 15.0
RETRY_MS = 2000
_LONGEST_PAUSE_S = 1.0
_MOST_LISTENERS = 256
_log = logging.getLogger(__name__)


@dataclass
class Listener:
    """One open stream: what it has not been sent yet, newest only, and the number of findings it knows."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    seen: dict[str, str] = field(default_factory=dict)
    findings: int = 0


class Hub:
    """All streams of one server.

    Args:
        shelf: where the runs are.
        poll_s: how often the folder of a followed run is looked at.
        ping_s: how often a stream without news gives a sign of life.

    Attributes:
        channels: the runs that somebody follows, by id.
    """

    def __init__(self, shelf: RunLibrary, poll_s: float = POLL_S, ping_s: float = PING_S) -> None:
        self._shelf = shelf
        self._poll_s, self._ping_s = poll_s, ping_s
        self.channels: dict[str, LiveChannel] = {}
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        self._closing.set()
        for channel in self.channels.values():
            channel.wake_all()

    @property
    def listeners(self) -> int:
        """How many streams are open."""
        return sum(len(channel.listeners) for channel in self.channels.values())

    @property
    def full(self) -> bool:
        """Whether no more streams are taken."""
        return self.listeners >= _MOST_LISTENERS

    async def stream(self, run: str, last_id: str | None) -> AsyncIterator[bytes]:
        """Yield server-sent events of a run for as long as somebody takes them.

        Args:
            last_id: the header Last-Event-ID: what that client knows is not sent again.
        """
        channel = self.channels.get(run)
        if channel is None:
            channel = self.channels[run] = LiveChannel(self._shelf, run, self._poll_s)
        listener = channel.join(_cursor(last_id))
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            pinged = time.monotonic()
            while not self._closing.is_set():
                for event in channel.news(listener):
                    yield event
                if time.monotonic() - pinged >= self._ping_s:
                    pinged = time.monotonic()
                    yield _event("ping", {"now": time.time()}, channel.cursor(listener))
                try:
                    await asyncio.wait_for(listener.wake.wait(), max(0.01, self._ping_s - (time.monotonic() - pinged)))
                except TimeoutError:
                    continue
                listener.wake.clear()
        finally:
            channel.leave(listener)
            if not channel.listeners:
                self.channels.pop(run, None)


class LiveChannel:
    """One run that somebody follows.

    Attributes:
        looks: how often its folder was looked at.
    """

    def __init__(self, shelf: RunLibrary, run: str, poll_s: float) -> None:
        self.listeners: list[Listener] = []
        self.looks = 0
        self._shelf, self._run, self._poll_s = shelf, run, poll_s
        self._look = RunLook()
        self._task: asyncio.Task[None] | None = None

    def join(self, cursor: dict[str, Any]) -> Listener:
        """Take in a listener, and begin to follow with the first."""
        listener = Listener(seen=cursor.get("seen", {}), findings=cursor.get("findings", 0))
        self.listeners.append(listener)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())
        return listener

    def leave(self, listener: Listener) -> None:
        """Let a listener go; with the last one following ends."""
        self.listeners.remove(listener)
        if not self.listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    def wake_all(self) -> None:
        """Have every listener look whether there is something for it."""
        for listener in self.listeners:
            listener.wake.set()

    def news(self, listener: Listener) -> list[bytes]:
        """Return the events that a listener has not had, the newest of each kind, and count them as had."""
        found = []
        for kind, (tag, content) in self._look.kinds.items():
            if listener.seen.get(kind) != tag:
                listener.seen[kind] = tag
                found.append((kind, content))
        for finding in self._look.findings[listener.findings :]:
            listener.findings += 1
            found.append(("finding", finding))
        return [_event(kind, content, self.cursor(listener)) for kind, content in found]

    def cursor(self, listener: Listener) -> str:
        """Return what a listener knows, as text for the field id."""
        packed = encode_json({"seen": listener.seen, "findings": listener.findings})
        return base64.urlsafe_b64encode(packed).decode()

    async def _follow(self) -> None:
        follower: PageFollower | None = None
        while True:
            began = time.monotonic()
            try:
                if follower is None:
                    follower = await asyncio.to_thread(lambda: PageFollower(self._shelf.reading(self._run)))
                look = await asyncio.to_thread(follower.look)
            except CordeeError as error:
                look, follower = _unreadable(error.text), None
            except Exception:
                _log.exception("following %s failed", self._run)
                look, follower = _unreadable("the server failed at reading this run; its log says more"), None
            self.looks += 1
            if look is not self._look:
                self._look = look
                self.wake_all()
            spent = time.monotonic() - began
            await asyncio.sleep(max(self._poll_s, min(spent, _LONGEST_PAUSE_S)))


def _unreadable(text: str) -> RunLook:
    return RunLook({"state": (f"unreadable:{text}", {"state": "unreadable", "text": text, "now": time.time()})})


def _event(kind: str, content: Any, cursor: str) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), cursor.encode(), encode_json(content))


def _cursor(text: str | None) -> dict[str, Any]:
    """Return what a client says that it knows; nothing when it is no cursor of ours."""
    try:
        found = parse_json(base64.urlsafe_b64decode((text or "").encode()))
        seen = {str(kind): str(tag) for kind, tag in found["seen"].items()}
        return {"seen": seen, "findings": max(0, int(found["findings"]))}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return {}
