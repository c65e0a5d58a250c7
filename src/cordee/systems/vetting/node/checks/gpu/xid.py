"""Has the driver reported errors of a GPU to the kernel log?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterable, Optional

from cordee.machine.gpus.driver import open_gpus
from cordee.machine.gpus.model import Gpu, GpusUnreadable
from cordee.machine.gpus.xid import Xid, driver_message
from cordee.machine.kernel_log import KernelLine, KernelLog, KernelLogClosed, read_kernel_log
from cordee.systems.vetting.node.checks._base import CannotTest, Context, Parameter, Result
from cordee.systems.vetting.node.checks.gpu._base import EXPECTED, GpuCheck, GpuFault

_SCOPES = ("device", "link", "user")


@dataclass
class XidEvent:
    """The same message about the same device: which, how often, and the last one's words and age in seconds."""

    meaning: Xid
    address: str
    switch: bool
    count: int = 0
    words: str = ""
    age_s: Optional[float] = None


class XidCheck(GpuCheck):
    """Looks for XIDs of the last `hours` in this boot's kernel log, and for SXIDs of NVSwitches.

    Those that ask for a reset, a reboot or a repair fail; those that a program causes, and unknown ones, warn. All GPUs
    of the node are judged, since one that fell off the bus is in nobody's list any more.
    """

    name = "gpu.xid"
    title = "Has the driver reported errors of a GPU to the kernel log?"
    parameters = (
        Parameter("hours", "number", "how far to look back, at most to the node's start", default=24, unit="h"),
        EXPECTED,
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        if parameters.get("gpus_expected") == 0:
            return self.result("skip", "no GPU is expected on this node")
        try:
            log = read_kernel_log(context.root)
        except KernelLogClosed as closed:
            raise CannotTest(str(closed), "closed") from None
        span_s = parameters["hours"] * 3600
        events = _events(line for line in log.lines if line.age_s is None or line.age_s <= span_s)
        gpus, refusal = _gpus()
        if refusal is not None and refusal.cause == "absent" and not events:
            raise CannotTest(str(refusal), "absent")
        # What the log says of a GPU is told here; that it does not answer, by the other checks.
        by_address = {gpu.pci_bus_id: replace(gpu, lost=None) for gpu in gpus if gpu.pci_bus_id}
        findings = [_finding(event, by_address.get(event.address)) for event in events]
        involved = [gpu for address, gpu in by_address.items() if any(event.address == address for event in events)]
        grave = sum(event.meaning.status == "fail" for event in events)
        return self.conclude(
            findings,
            involved,
            f"no XID in {_span(log, span_s)} ({log.source})" + (f"; {refusal}" if refusal else ""),
            value=grave,
            unit="kinds of grave XIDs",
            threshold=0,
            facts=_facts(events, by_address, log),
        )


def _gpus() -> tuple[list[Gpu], Optional[GpusUnreadable]]:
    """Return the GPUs, to put a name to an address; without the driver's library the addresses must do."""
    try:
        return open_gpus().read(), None
    except GpusUnreadable as refusal:
        return [], refusal


def _events(lines: Iterable[KernelLine]) -> list[XidEvent]:
    found: dict[tuple[str, int, bool, str], XidEvent] = {}
    for line in lines:
        said = driver_message(line.text)
        if said is None:
            continue
        key = (said.address, said.meaning.number, said.switch, said.meaning.status)
        event = found.setdefault(key, XidEvent(said.meaning, said.address, said.switch))
        event.count, event.words, event.age_s = event.count + 1, said.words, line.age_s
    return sorted(
        found.values(), key=lambda event: (event.meaning.status != "fail", event.address, event.meaning.number)
    )


def _finding(event: XidEvent, gpu: Optional[Gpu]) -> GpuFault:
    kind = "SXID" if event.switch else "XID"
    times = "" if event.count == 1 else f", {event.count} times"
    age = "" if event.age_s is None else f", {event.age_s / 3600:.1f} h ago"
    words = f": {event.words}" if event.words else ""
    text = f"{kind} {event.meaning.number}, {event.meaning.name}{times}{age}{words}; {event.meaning.action}"
    if gpu is None:
        text = f"{'NVSwitch' if event.switch else 'GPU'} at {event.address}: {text}"
    return GpuFault(gpu, event.meaning.status, text)


def _facts(events: list[XidEvent], by_address: dict[str, Gpu], log: KernelLog) -> dict[str, Any]:
    """Return numbers and events for machines; `scope` is that of the gravest."""
    found: dict[str, Any] = {
        "xids": sorted({event.meaning.number for event in events if not event.switch}),
        "sxids": sorted({event.meaning.number for event in events if event.switch}),
        "source": log.source,
        "events": [
            {
                "xid": event.meaning.number,
                "switch": event.switch,
                "scope": event.meaning.scope,
                "status": event.meaning.status,
                "pci_bus_id": event.address,
                "device": by_address[event.address].index if event.address in by_address else None,
                "uuid": by_address[event.address].uuid if event.address in by_address else None,
                "count": event.count,
                "age_s": None if event.age_s is None else round(event.age_s),
                "text": event.words,
            }
            for event in events
        ],
    }
    grave = [event for event in events if event.meaning.status == "fail"] or events
    if grave:
        found["scope"] = min((event.meaning.scope for event in grave), key=_SCOPES.index)
    return found


def _span(log: KernelLog, span_s: float) -> str:
    """Return how much time was looked at, and what limited it."""
    if log.uptime_s is not None and log.uptime_s < span_s:
        span_s, limit = log.uptime_s, "since the node was started"
    else:
        limit = ""
    if log.reaches_s is not None and log.reaches_s < 0.9 * span_s:
        span_s, limit = log.reaches_s, "the log goes no further back"
    return f"the last {span_s / 3600:.1f} h" + (f", {limit}" if limit else "")
