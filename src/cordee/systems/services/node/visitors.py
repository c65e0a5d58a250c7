"""When somebody was connected to a service last."""

from __future__ import annotations

from typing import Callable, Collection, Optional

from cordee.core.clock import monotonic, unix_s
from cordee.machine.tcp_sockets import TcpConnections

_LOOK_S = 0.5
# What ends so soon after a question of our own is taken for that question.
_OWN_S = 0.3


class Visitors:
    """Who uses a service: connections that stand, and those that ended since the last look; own questions do not count.

    Attributes:
        last: when somebody was seen (monotonic); None: nobody yet.
    """

    def __init__(self) -> None:
        self.last: Optional[float] = None
        self._connections: Optional[TcpConnections] = None
        self._looked = self._asked = float("-inf")
        try:
            self._connections = TcpConnections()
        except OSError:  # then only connections that stand are seen
            pass

    @property
    def last_unix_s(self) -> Optional[float]:
        """When somebody was seen, as the clock of the machine tells time."""
        return None if self.last is None else round(unix_s() - (monotonic() - self.last), 1)

    def asked(self) -> None:
        """Take what ends now for a question of our own."""
        self._asked = monotonic()
        self._ended(())

    def look(self, ports: Collection[int], is_used: Callable[[], bool]) -> None:
        """See who uses these ports, at most twice a second; `is_used` says whether a connection stands now."""
        now = monotonic()
        if now - self._asked < _OWN_S:
            self._ended(())
        elif now - self._looked >= _LOOK_S:
            self._looked = now
            if self._ended(ports) or is_used():
                self.last = now

    def _ended(self, ports: Collection[int]) -> bool:
        """Return whether a connection to one of these ports has ended since this was called before."""
        ended = self._connections.ended() if self._connections is not None else []
        return any(one.own_port in ports and one.port for one in ended)  # one that was only bound has no other end
