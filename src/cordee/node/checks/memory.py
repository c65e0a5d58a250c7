"""host.memory: enough memory is available, within the cgroup's limit."""

from __future__ import annotations

from typing import Any, Mapping

from cordee.node.checks._base import Check, Result, unknown
from cordee.node.samplers.proc import memory_limits
from cordee.units import format_size


class MemoryCheck(Check):
    """Parameters: `min_bytes`."""

    def run(self, parameters: Mapping[str, Any], request: Mapping[str, Any]) -> Result:
        """Compare what is available with what is wanted."""
        total, available = memory_limits()
        if total == 0:
            return unknown("/proc/meminfo cannot be read")
        least = parameters["min_bytes"]
        text = f"{format_size(available)} of {format_size(total)} available, {format_size(least)} wanted"
        return Result("pass" if available >= least else "fail", text, float(available), "bytes", float(least))
