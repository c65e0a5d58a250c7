"""Is somebody else using this node's CPUs?"""

from __future__ import annotations

import os
from typing import Any

from cordee.systems.vetting.node.checks._base import Check, Context, Parameter, Result

_WARN_RATIO = 2.0


class LoadCheck(Check):
    """Compares the load of the last minute per core with `max_ratio` where one is given, and warns above `warn_ratio`.

    Without a `warn_ratio` it warns above 2.0, or not at all below a given `max_ratio`.
    """

    name = "host.load"
    title = "Is somebody else using this node's CPUs?"
    parameters = (
        Parameter("max_ratio", "number", "highest load of the last minute", unit="load per core"),
        Parameter("warn_ratio", "number", "load above which it warns", unit="load per core"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        cores = os.cpu_count()
        if not cores:
            return self.result("unknown", "the number of cores cannot be read", cause="closed")
        load = os.getloadavg()[0]
        ratio = load / cores
        limit = parameters.get("max_ratio")
        warn = parameters.get("warn_ratio") or limit or _WARN_RATIO
        status = "fail" if limit is not None and ratio > limit else "warn" if ratio > warn else "pass"
        threshold = limit if status == "fail" else warn
        evidence = f"load {load:.2f} on {cores} cores"
        return self.result(status, evidence, value=round(ratio, 3), unit="load per core", threshold=threshold)
