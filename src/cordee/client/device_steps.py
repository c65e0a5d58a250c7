"""How a device spends its steps, by its own clock: events that are recorded at the same places of a step."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

# The places, in the order in which a step comes by; the next step's forward pass ends the one before.
FORWARD, BACKWARD_ENDS, OPTIMIZER, STEP_ENDS = range(4)
_MARKS = 5


class StepShares(NamedTuple):
    """What part of a step, from forward pass to forward pass, the device was at a kind of work, and how long it took."""

    compute: float
    data: float
    communication: float
    seconds: float


class DeviceSteps:
    """Measures one step at a time: a device is asked for nothing before it has done it, and nothing waits for it.

    Args:
        event: returns an event that is recorded on the current stream at this moment: `query()` says whether the device
            has come by, `elapsed_time(other)` how many milliseconds later it came by another.
    """

    def __init__(self, event: Callable[[], Any]) -> None:
        self._event = event
        self._recorded: list[Any] = []

    def passes(self, place: int) -> None:
        """The main thread has come by one of the places; one that is out of turn begins the step anew."""
        recorded = self._recorded
        if len(recorded) == _MARKS:
            return
        if place == len(recorded) % (_MARKS - 1):
            recorded.append(self._event())
        elif place == FORWARD and len(recorded) > 1:  # micro-batches, or a pass that evaluates: not a step of this form
            self._recorded = [self._event()]
        elif place == BACKWARD_ENDS and len(recorded) == OPTIMIZER:
            recorded[-1] = self._event()

    def taken(self) -> Optional[StepShares]:
        """Return what was measured, once the device is done with it; None before."""
        recorded = self._recorded
        if len(recorded) < _MARKS or not recorded[-1].query():
            return None
        self._recorded = []
        spans = [max(0.0, one.elapsed_time(other)) for one, other in zip(recorded, recorded[1:])]
        whole = sum(spans)
        if not whole:
            return None
        forward_and_backward, waits, update, between = (span / whole for span in spans)
        return StepShares(forward_and_backward + update, between, waits, whole / 1000)
