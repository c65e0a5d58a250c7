"""What a supervisor orders and how much it asks of others: every order has an answer, and all of it stays small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from support.simulation.surroundings import WorldPort

# Which news answers which order; the ranks' end may take as long as the training.
_ANSWERS = {"setup_done": "setup", "checks_done": "checks", "port": "port", "cleared": "clear", "ranks_started": "ranks", "ranks_ended": "ranks"}  # fmt: skip
_ORDERS = frozenset(_ANSWERS.values())
_ANSWER_S = 60.0
_MOST_QUEUED_BYTES = 256 << 10
# In a run of two nodes, for each: at once, and a second; frames, and bytes of them and of what is in them.
_FRAMES, _FRAMES_A_SECOND = 400, 6.0
_METADATA = ("open", "mkdir", "listdir", "stat", "replace", "unlink", "touch")
_CALLS, _CALLS_A_SECOND, _CALLS_AN_EVENT = 60, 2.0, 3
_AGAIN_A_SECOND = 0.1  # more, while a disk refuses and is asked again
_RPCS, _RPCS_A_MINUTE = 8, 2.0


class OrderWatch:
    """Watches what is said between a supervisor and its nodes.

    Args:
        world: that it happens in.
        broken: called with a rule and what was seen.

    Attributes:
        trouble_s: for how long, all in all, faults last.
        starts: how often supervisors and agents have begun; each may ask for more.
    """

    def __init__(self, world: WorldPort, broken: Callable[[str, str], None]) -> None:
        self._world, self._broken = world, broken
        self.trouble_s = 0.0
        self.starts = 0
        self._open: dict[tuple[str, str], float] = {}
        self._frames: Counter[str] = Counter()
        self.rpcs = 0

    def sent(self, node: str, to_node: bool, message: dict[str, Any]) -> None:
        """Take a message as it is sent."""
        kind = message.get("t", "")
        self._frames[node] += 1
        if to_node and kind in _ORDERS:
            self._open.setdefault((node, kind), self._world.loop.now)
            led = self._world.led
            session = led.nodes[node].session if led is not None else None
            if session is not None and session.outbox.bytes > _MOST_QUEUED_BYTES:
                self._broken("a queue grows", f"{session.outbox.bytes} bytes for {node}")
        elif not to_node:
            self._answered(node, _ANSWERS.get(kind, ""))

    def _answered(self, node: str, order: str) -> None:
        asked = self._open.pop((node, order), None)
        if asked is not None and self._world.loop.now - asked > _ANSWER_S + self.trouble_s:
            self._broken(
                "an order was not answered in time", f"{order} of {node} after {self._world.loop.now - asked:.0f} s"
            )

    def lost(self, node: str = "") -> None:
        """Nobody waits for a node's answers any more; without one, for nobody's."""
        for key in [key for key in self._open if node in ("", key[0])]:
            del self._open[key]

    def at_end(self, events: int) -> None:
        """Look at what it came to."""
        seconds, starts = self._world.loop.now, self.starts
        for node, count in self._frames.items():
            if count > _FRAMES * starts + _FRAMES_A_SECOND * seconds:
                self._broken("too many messages", f"{count} for {node} in {seconds:.0f} s")
        calls = sum(self._world.disk.calls[call] for call in _METADATA)
        most = _CALLS * starts + _CALLS_A_SECOND * seconds + _AGAIN_A_SECOND * self.trouble_s + _CALLS_AN_EVENT * events
        if calls > most:
            self._broken("too many metadata operations", f"{calls} in {seconds:.0f} s for {events} events")
        if self.rpcs > _RPCS + _RPCS_A_MINUTE * seconds / 60:
            self._broken("too many questions to the scheduler", f"{self.rpcs} in {seconds:.0f} s")
