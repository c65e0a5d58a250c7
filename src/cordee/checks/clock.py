"""Does the node know what time it is?"""

from __future__ import annotations

import time
from typing import Any

from cordee.checks._base import CannotTest, Check, Context, Parameter, Result
from cordee.hardware.clock import read_clock

_MAX_SKEW_S = 0.05


class ClockCheck(Check):
    """Holds the clock against the time server's by its own word, and against the vetting's own clock where that is given.

    A clock that nobody keeps right is a warning: it is right now, and will not stay so.
    """

    name = "host.clock"
    title = "Is the node's clock kept right, and does it show what the others show?"
    parameters = (
        Parameter("max_skew", "duration", "how far the clock may be off", default=_MAX_SKEW_S, unit="s"),
        Parameter(
            "synchronized", "boolean", "whether a clock that no time server keeps right is a failure", default=False
        ),
        Parameter(
            "reference_unix_s", "number", "the time by whoever conducts the vetting, which fills this in", unit="s"
        ),
        Parameter(
            "local_unix_s", "number", "this node's time at that moment; without it, when the check starts", unit="s"
        ),
        Parameter("uncertainty_s", "number", "how far that comparison may be wrong", default=0.0, unit="s"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        now = time.time()
        limit = parameters["max_skew"]
        clock = read_clock(context.env.get("PATH"))
        reference = parameters.get("reference_unix_s")
        if clock is None and reference is None:
            raise CannotTest("neither chrony nor the kernel says how the clock is kept", "closed")
        words: list[str] = []
        faults: list[str] = []
        warnings: list[str] = []
        skews: list[float] = []
        if reference is not None:
            skew, uncertainty = parameters.get("local_unix_s", now) - reference, parameters["uncertainty_s"]
            skews.append(skew)
            said = f"{_off(skew)} the clock of the node that conducts the vetting (known within {uncertainty:.3g} s)"
            (faults if abs(skew) > limit + uncertainty else words).append(said)
        if clock is not None and clock.synchronized:
            offset = clock.offset_s or 0.0
            skews.append(offset)
            (faults if abs(offset) > limit else words).append(f"{_off(offset)} its time server, says {clock.source}")
        elif clock is not None:
            said = f"no time server keeps the clock right, says {clock.source}"
            (faults if parameters["synchronized"] else warnings).append(said)
        status = "fail" if faults else "warn" if warnings else "pass"
        return self.result(
            status,
            "; ".join(faults + warnings + words),
            value=round(max(map(abs, skews)), 6) if skews else None,
            unit="s",
            threshold=limit,
            facts={"unix_s": now, "synchronized": None if clock is None else clock.synchronized},
        )


def _off(seconds: float) -> str:
    return f"{abs(seconds) * 1000:.3g} ms {'ahead of' if seconds >= 0 else 'behind'}"
