"""Do errors grow on the node's network links?"""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any

from cordee.machine.links import MOST_DROPS, Counters, growth, list_counters, read_counters
from cordee.systems.vetting.node.checks._base import Check, Context, Parameter, Result
from cordee.systems.vetting.node.checks.link.state import LINKS, links_of

_SECONDS = 5.0
_RESERVE_S = 0.5
# A counter of the InfiniBand specification stops at its largest value instead of starting again.
_SATURATED = {"symbol_error": 65535, "link_downed": 255, "link_error_recovery": 255, "port_rcv_errors": 65535}


class LinkErrorsCheck(Check):
    """Reads each port's error counters twice; errors that grow meanwhile are a fault of that port, drops a warning.

    The port of 10 errors in 5 seconds will have thousands in an hour of training; what a counter holds from the past says
    nothing, since nobody knows when it was reset.
    """

    name = "link.errors"
    title = "Do errors grow on the node's network links, or do links go down and up?"
    scope = "link"
    parameters = (
        LINKS,
        Parameter("seconds", "duration", "time between the two readings", default=_SECONDS, unit="s"),
        Parameter("max_errors", "count", "most new errors of one link", default=0, unit="errors"),
        Parameter(
            "max_drops",
            "count",
            "most packets that one link drops for want of room",
            default=MOST_DROPS,
            unit="packets",
        ),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        links = links_of(context, parameters.get("links"))
        if not links:
            if parameters.get("links"):
                return self.result("fail", f"no link {', '.join(parameters['links'])}")
            return self.result("skip", "no InfiniBand, RoCE or Slingshot link, and none asked for")
        before = {link.name: read_counters(link) for link in links}
        started = monotonic()
        sleep(max(0.0, min(parameters["seconds"], context.deadline_s - _RESERVE_S)))
        faults, warnings, rows, most = [], [], [], 0
        for link in links:
            errors, drops, flaps = growth(before[link.name], read_counters(link))
            most = max(most, sum(errors.values()))
            rows.append({"name": link.name, "errors": errors, "drops": drops, "flaps": flaps})
            if flaps:
                faults.append(f"{link.name} went down {flaps} times")
            if sum(errors.values()) > parameters["max_errors"]:
                faults.append(f"{link.name}: {list_counters(errors)}")
            if sum(drops.values()) > parameters["max_drops"]:
                warnings.append(f"{link.name}: {list_counters(drops)}")
            warnings += [
                f"{link.name}: {name} stands at its largest value and cannot grow: reset the port's counters"
                for name in _saturated(before[link.name])
                if link.kind in ("infiniband", "roce")
            ]
        seconds = monotonic() - started
        status = "fail" if faults else "warn" if warnings else "pass"
        words = "; ".join(faults + warnings) or f"no new errors on {', '.join(link.name for link in links)}"
        return self.result(
            status,
            f"{words} within {seconds:.1f} s",
            value=most,
            unit="errors",
            threshold=parameters["max_errors"],
            facts={"links": rows, "seconds": round(seconds, 2)},
        )


def _saturated(counters: Counters) -> list[str]:
    return [name for name, largest in _SATURATED.items() if counters.errors.get(name) == largest]
