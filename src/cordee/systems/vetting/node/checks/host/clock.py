"""Does the node know what time it is?"""

from __future__ import annotations

from typing import Any

from cordee.machine.clock import read_clock
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Context, Parameter, Result

_MAX_SKEW_S = 0.05


class ClockCheck(Check):
    """Holds the clock against its time server's, by the word of chrony or the kernel.

    A clock that nobody keeps right is a warning: it is right now, and will not stay so. The vetting holds the clocks of all
    nodes against each other besides, and fails those that are further than `max_skew` from the median.
    """

    name = "host.clock"
    title = "Is the node's clock kept right, and does it show what the others show?"
    parameters = (
        Parameter("max_skew", "duration", "how far the clock may be off", default=_MAX_SKEW_S, unit="s"),
        Parameter(
            "synchronized", "boolean", "whether a clock that no time server keeps right is a failure", default=False
        ),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        limit = parameters["max_skew"]
        clock = read_clock(context.env.get("PATH"))
        if clock is None:
            raise CannotTest("neither chrony nor the kernel says how the clock is kept", "closed")
        offset, facts = clock.offset_s, {"synchronized": clock.synchronized, "source": clock.source}
        if not clock.synchronized:
            status = "fail" if parameters["synchronized"] else "warn"
            text = f"no time server keeps the clock right, says {clock.source}"
            return self.result(status, text, unit="s", threshold=limit, facts=facts)
        status = "fail" if offset is not None and abs(offset) > limit else "pass"
        text = f"{_off(offset or 0.0)} its time server, says {clock.source}"
        return self.result(status, text, value=offset, unit="s", threshold=limit, facts=facts)


def _off(seconds: float) -> str:
    size = f"{abs(seconds) * 1000:.3g} ms" if abs(seconds) < 1 else f"{abs(seconds):.3g} s"
    return f"{size} {'ahead of' if seconds >= 0 else 'behind'}"
