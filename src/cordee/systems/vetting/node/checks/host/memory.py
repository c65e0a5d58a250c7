"""Is there memory left for the ranks?"""

from __future__ import annotations

from typing import Any

from cordee.core.units import format_size
from cordee.machine.memory import MemorySource
from cordee.systems.vetting.node.checks._base import Check, Context, Parameter, Result


class MemoryCheck(Check):
    """Compares the bytes that can be had without swapping, within the cgroup's limit, with `min_bytes`."""

    name = "host.memory"
    title = "Is there memory left for the ranks?"
    parameters = (Parameter("min_bytes", "size", "fewest bytes that can be had without swapping", default=0),)

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        source = MemorySource(context.host("/proc"))
        reading = source.read()
        if reading is None:
            return self.result("unknown", source.reason or "the memory cannot be read", cause="closed")
        minimum = parameters.get("min_bytes") or 0
        available, total = reading.available_bytes, reading.total_bytes
        evidence = f"{format_size(available)} of {format_size(total)} available ({reading.source})"
        status = "pass" if available >= minimum else "fail"
        if status == "fail":
            evidence += f"; {format_size(minimum)} needed"
        return self.result(status, evidence, value=available, unit="bytes", threshold=minimum)
