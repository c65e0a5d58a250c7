"""Are the links between the GPUs up and free of errors?"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, Iterator, Optional

from cordee.machine.gpus.faults import link_growth
from cordee.machine.gpus.model import Gpu, GpuSource
from cordee.systems.vetting.node.checks._base import Comparison, Context, Parameter, Result
from cordee.systems.vetting.node.checks.gpu._base import DEVICES, EXPECTED, GpuCheck, GpuFault, choose, not_told, read


class NvlinkCheck(GpuCheck):
    """Looks for links that are down, and for error counters that grow within `seconds`.

    GPUs without NVLink are skipped unless `links` says how many there must be.
    """

    name = "gpu.nvlink"
    title = "Are the links between the GPUs up and free of errors?"
    scope = "link"
    parts = ("links",)
    parameters = (
        Parameter("links", "count", "links of each GPU that must be up; else all that it has"),
        Parameter("seconds", "duration", "between two readings of the error counters", default=2.0),
        Parameter("max_errors", "count", "growth of a counter within `seconds` that passes", default=0),
        EXPECTED,
        DEVICES,
    )

    def judge(self, gpus: list[Gpu], source: GpuSource, parameters: dict[str, Any], context: Context) -> Result:
        wanted = parameters.get("links")
        if wanted is None and all(not gpu.lost and _has_no_links(gpu) for gpu in gpus):
            return self.result("skip", f"{', '.join(map(str, gpus))}: no NVLink, the driver says")
        first = {(gpu.index, link.link): link.errors for gpu in gpus for link in gpu.links or ()}
        if any(first.values()):
            time.sleep(min(parameters["seconds"], max(0.0, context.deadline_s - 1)))
            gpus = choose(read(source, self.parts), parameters, context)
        findings = [finding for gpu in gpus for finding in _states(gpu, wanted)]
        findings += [finding for gpu in gpus for finding in _growth(gpu, first, parameters)]
        active = [_active(gpu) for gpu in gpus if gpu.links is not None]
        down = [f"GPU {gpu.index} NVLink {link.link}" for gpu in gpus for link in gpu.links or () if not link.active]
        compare = [asdict(Comparison("same", status="warn"))] if active else []
        return self.conclude(
            findings,
            gpus,
            f"at least {min(active, default=0)} NVLinks up on each of {len(gpus)} GPUs, no new errors",
            value=min(active, default=None),
            unit="links",
            threshold=wanted,
            facts={"links": [_link_facts(gpu) for gpu in gpus if gpu.links is not None], "links_down": down},
            compare=compare,
        )


def _has_no_links(gpu: Gpu) -> bool:
    return not gpu.links and ("links" not in gpu.missing or gpu.missing["links"].cause == "absent")


def _states(gpu: Gpu, wanted: Optional[int]) -> Iterator[GpuFault]:
    if gpu.lost:
        return
    if gpu.fabric_fault:
        yield GpuFault(gpu, "fail", gpu.fabric_fault)
    if gpu.links is None and not (wanted is None and _has_no_links(gpu)):
        yield not_told(gpu, "links")
        return
    active, every = _active(gpu), len(gpu.links or ())
    down = ", ".join(str(link.link) for link in gpu.links or () if not link.active)
    if wanted is not None and active < wanted:
        yield GpuFault(gpu, "fail", f"{active} of {wanted} NVLinks are up" + (f"; down: {down}" if down else ""))
    elif wanted is None and active == 0 and every:
        yield GpuFault(gpu, "warn", f"none of its {every} NVLinks is up: not wired, or all of them down")
    elif wanted is None and active < every:
        yield GpuFault(gpu, "fail", f"NVLink {down} down ({active} of {every} are up)")


def _growth(gpu: Gpu, first: dict[tuple[int, int], dict[str, int]], parameters: dict[str, Any]) -> Iterator[GpuFault]:
    for link in gpu.links or ():
        before = first.get((gpu.index, link.link), {})
        bad = {name: by for name, by in link_growth(link, before).items() if by > parameters["max_errors"]}
        if bad:
            texts = ", ".join(f"{name.replace('_', ' ')} +{by}" for name, by in bad.items())
            yield GpuFault(gpu, "fail", f"NVLink {link.link}: errors grow: {texts} in {parameters['seconds']:g} s")


def _active(gpu: Gpu) -> int:
    return sum(link.active for link in gpu.links or ())


def _link_facts(gpu: Gpu) -> dict[str, Any]:
    links = [{"link": link.link, "active": link.active, "errors": link.errors} for link in gpu.links or ()]
    return {"device": gpu.index, "uuid": gpu.uuid, "links": links}
