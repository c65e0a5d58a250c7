"""host.load: nobody else keeps the cores busy."""

from __future__ import annotations

import os
from typing import Any, Mapping

from cordee.node.checks._base import Check, Result

_BUSY_RATIO = 2.0


class LoadCheck(Check):
    """Parameters: `max_ratio`, runnable processes per core over the last minute; None only warns, above 2."""

    def run(self, parameters: Mapping[str, Any], request: Mapping[str, Any]) -> Result:
        """Compare the load per core with the limit."""
        limit = parameters.get("max_ratio")
        cores = len(os.sched_getaffinity(0))
        ratio = os.getloadavg()[0] / cores
        text = f"load per core {ratio:.2f} over the last minute"
        if limit is not None and ratio > limit:
            return Result("fail", f"{text}, at most {limit} wanted", ratio, "ratio", limit)
        if limit is None and ratio > _BUSY_RATIO:
            return Result("warn", f"{text}: something else runs here", ratio, "ratio", _BUSY_RATIO)
        return Result("pass", text, ratio, "ratio", limit)
