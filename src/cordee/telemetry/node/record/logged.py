"""What recorded processes say by `cordee.log`, on its way from their channels into the recording."""

from __future__ import annotations

import os
from typing import Optional

from cordee.telemetry.node.blocklog import encode_events
from cordee.telemetry.node.name_cap import NameCap
from cordee.telemetry.node.places import place_record
from cordee.telemetry.node.record.roster import Registration
from cordee.wire.channel import ChannelReader

_EVENTS_PER_READ = 5000


class ProcessChannel:
    """The channel of one process.

    Args:
        node: the node's name.
        registration: whose channel it is.

    Attributes:
        cap: how many metric names it may use.
    """

    def __init__(self, node: str, registration: Registration) -> None:
        self._node = node
        self._rank, self._attempt = registration.rank, registration.attempt
        self._path = registration.channel
        self._reader: Optional[ChannelReader] = None
        self.cap = NameCap()
        self._cursor = 0
        self._dropped = 0
        if self._path:
            try:
                self._reader = ChannelReader(self._path)
                self._cursor = self._reader.cursor
            except (OSError, ValueError):
                self._reader = None

    def read(self) -> bytes:
        """Return new events as records, empty when there are none; `stored` frees their place."""
        if self._reader is None:
            return b""
        events, self._cursor = self._reader.read(_EVENTS_PER_READ)
        news = self._reader.dropped - self._dropped
        places = place_record(self._node, self._rank, self._attempt, self._reader.told())
        events = self.cap.keep(self._rank, events)
        if not events and not news:
            return places
        self._dropped += news
        return places + encode_events(self._node, self._rank, self._attempt, news, events)

    def stored(self) -> None:
        """Free the place of what was read: it is in the recording."""
        if self._reader is not None:
            self._reader.acknowledge(self._cursor)

    def close(self) -> None:
        """Remove the channel: its process has ended and all was read."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._path:
            try:
                os.unlink(self._path)
            except OSError:
                return
