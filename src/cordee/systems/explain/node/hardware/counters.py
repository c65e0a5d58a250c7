"""What counters of GPUs, ports, memory modules and processors have grown by since the watch began, judged by the rules of vetting."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any, Iterator, Mapping, Optional, Sequence

from cordee.core.clock import monotonic
from cordee.machine import sysfs
from cordee.machine.edac import MOST_CORRECTED, MemoryErrors, read_memory_errors
from cordee.machine.gpus.faults import link_growth, memory_faults, throttle_faults
from cordee.machine.gpus.model import Gpu
from cordee.machine.links import MOST_DROPS, Counters, FabricPort, growth, list_counters, read_counters, read_links
from cordee.systems.explain.node.hardware.causes import Seen

_SINCE = "since the watch began"
_RESET = "reset the GPU once its ranks have ended; run the vendor's diagnostics if it comes again"
_COOLING = "look at cooling and power supply; leave the node out if its ranks are slow"
_CABLE = "look at cable, transceiver and switch port; leave the node out if it grows"
_LINKS = "reset all GPUs of the fabric; look at the NVLinks and switches"
# As DCGM's health watch has it (DCGM_LIMIT_MAX_PCIREPLAY_RATE): some replays are how PCIe works.
_REPLAYS_PER_MINUTE = 8
# Reasons for low clocks come and go with the load: told once they stand at so many looks in a row.
_LOOKS = 2
_MEMORY = (
    "ecc_corrected",
    "ecc_uncorrectable",
    "remapped_rows_corrected",
    "remapped_rows_uncorrectable",
    "remap_pending",
    "remap_failure",
    "retired_pages",
    "retired_pending",
)
_SEVERITY = {"fail": "error", "warn": "warn"}


class GpuWatch:
    """One GPU, from look to look.

    Args:
        first: what the driver said at the first look.
    """

    def __init__(self, first: Gpu) -> None:
        self._first, self._last, self._at = first, first, monotonic()
        self._links = {link.link: link for link in first.links or ()}
        self._slowed = 0

    def look(self, gpu: Gpu, ranks: Sequence[int]) -> Iterator[Seen]:
        """Yield what is wrong now and was not before the watch began, but for low clocks, which hold up the job in any case."""
        if gpu.lost:
            text, what = f"does not answer: {gpu.lost}", "reboot the node; if it comes back, reseat or replace the GPU"
            yield self._seen("hardware-gpu", "error", "lost", text, what, ranks)
            return
        yield from self._memory(gpu, ranks)
        faults = throttle_faults(gpu)
        self._slowed = self._slowed + 1 if faults else 0
        if self._slowed >= _LOOKS:
            severity, facts = _SEVERITY[faults[0].status], {"after": {"throttle_reasons": gpu.throttle_reasons}}
            yield self._seen(
                "hardware-throttled", severity, "clocks", faults[0].text, _COOLING, ranks, self._slowed, facts
            )
        yield from self._pcie(gpu, ranks)
        yield from self._nvlinks(gpu, ranks)
        action = gpu.recovery_action
        if action not in (None, "none", self._first.recovery_action):
            yield self._seen("hardware-gpu", "error", "repair", f"the driver asks for: {action}", _RESET, ranks)

    def _memory(self, gpu: Gpu, ranks: Sequence[int]) -> Iterator[Seen]:
        first, new = self._first, _new_of(self._first, gpu)
        errors = (new.ecc_uncorrectable or 0) + (new.ecc_corrected or 0)
        repaired = sum(
            _grown(getattr(first, name), getattr(gpu, name)) or 0
            for name in ("remapped_rows_corrected", "remapped_rows_uncorrectable", "retired_pages")
        )
        facts = {"before": _memory_of(first), "after": _memory_of(gpu)}
        for fault in memory_faults(new, _SINCE):
            kind = re.sub(r"[^a-z]+", "-", fault.text.lower()).strip("-")
            severity = _SEVERITY[fault.status]
            yield self._seen("hardware-gpu-memory", severity, kind, fault.text, _RESET, ranks, max(errors, 1), facts)
        if repaired:
            text = f"{repaired} rows of its memory were remapped, or pages retired, {_SINCE}"
            what = "nothing now; reset the GPU before the next job, and watch whether more follow"
            yield self._seen("hardware-gpu-memory", "warn", "repaired", text, what, ranks, repaired, facts)

    def _pcie(self, gpu: Gpu, ranks: Sequence[int]) -> Iterator[Seen]:
        now, last = monotonic(), self._last
        minutes, self._last, self._at = max(now - self._at, 1.0) / 60, gpu, now
        new = _grown(last.pcie_replays, gpu.pcie_replays) or 0
        if new > _REPLAYS_PER_MINUTE * max(minutes, 1.0):
            total = _grown(self._first.pcie_replays, gpu.pcie_replays) or new
            facts = {"before": {"pcie_replays": self._first.pcie_replays}, "after": {"pcie_replays": gpu.pcie_replays}}
            text, what = f"{total} PCIe replays {_SINCE}", "reseat the GPU, or look at its riser; leave the node out"
            yield self._seen("hardware-pcie", "warn", "replays", text, what, ranks, total, facts)

    def _nvlinks(self, gpu: Gpu, ranks: Sequence[int]) -> Iterator[Seen]:
        for link in gpu.links or ():
            first = self._links.setdefault(link.link, link)
            grown = {name: by for name, by in link_growth(link, first.errors).items() if by > 0}
            facts = {"before": first.errors, "after": link.errors, "link": link.link}
            if first.active and not link.active:
                yield self._seen(
                    "hardware-nvlink", "error", f"down-{link.link}", f"NVLink {link.link} is down", _LINKS, ranks
                )
            if grown:
                severity = "error" if "recovery" in grown else "warn"
                text = f"NVLink {link.link}: {list_counters(grown)} {_SINCE}"
                total = sum(grown.values())
                yield self._seen("hardware-nvlink", severity, f"errors-{link.link}", text, _LINKS, ranks, total, facts)

    def _seen(
        self,
        rule: str,
        severity: str,
        kind: str,
        text: str,
        what: str,
        ranks: Sequence[int],
        total: int = 1,
        facts: Mapping[str, Any] = {},
    ) -> Seen:
        first = self._first
        device = first.uuid or first.pci_bus_id or f"GPU {first.index}"
        more = {**facts, "ranks": list(ranks), "pci_bus_id": first.pci_bus_id}
        return Seen(rule, severity, device, kind, text, what, str(first), total, facts=more)


class NodeCounters:
    """The fabric's ports, the memory and the processors of a node, from look to look.

    Args:
        root: where the host's files are seen.

    Attributes:
        ports: names of the fabric's ports.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._first = {port.name: (port.up, read_counters(port)) for port in read_links(root)}
        self._drops = {name: counters.drops for name, (_, counters) in self._first.items()}
        self._memory = {one.place: one for one in read_memory_errors(root) or ()}
        self._packages = dict(_packages(root))
        self._hot = {package: sysfs.number(path) for package, path in self._packages.items()}
        self.ports = sorted(self._first)

    def look(self) -> Iterator[Seen]:
        """Yield what has grown."""
        if self._first:
            for port in read_links(self._root):
                if port.name in self._first:
                    yield from self._port(port)
        if self._memory:
            for module in read_memory_errors(self._root) or ():
                yield from self._module(module)
        for package, path in self._packages.items():
            times = _grown(self._hot[package], sysfs.number(path))
            if times:
                text = f"its clocks were held down for heat {times} times {_SINCE}"
                facts = {"before": self._hot[package], "after": sysfs.number(path)}
                about = f"processor {package}"
                yield Seen(
                    "hardware-throttled",
                    "warn",
                    f"package {package}",
                    "heat",
                    text,
                    _COOLING,
                    about,
                    times,
                    facts=facts,
                )

    def _port(self, port: FabricPort) -> Iterator[Seen]:
        up, first = self._first[port.name]
        now = read_counters(port)
        grown, dropped = growth(first, now), growth(Counters({}, self._drops[port.name], 0), now).drops
        self._drops[port.name] = now.drops
        facts = {"before": first._asdict(), "after": now._asdict(), "kind_of_port": port.kind}
        if up and not port.up:
            yield Seen("hardware-link", "error", port.name, "down", f"is down: {port.describe()}", _CABLE, total=1)
        if grown.flaps:
            text = f"went down {grown.flaps} times {_SINCE}"
            yield Seen("hardware-link", "error", port.name, "flaps", text, _CABLE, total=grown.flaps, facts=facts)
        errors = {name: by for name, by in grown.errors.items() if name != "link_downed"}
        if errors:
            text, total = f"{list_counters(errors)} {_SINCE}", sum(errors.values())
            yield Seen("hardware-link", "warn", port.name, "errors", text, _CABLE, total=total, facts=facts)
        if sum(dropped.values()) > MOST_DROPS:
            text, total = f"drops packets: {list_counters(dropped)} since the last look", sum(grown.drops.values())
            what = "look at congestion and flow control of the fabric"
            yield Seen("hardware-link", "warn", port.name, "drops", text, what, total=total, facts=facts)

    def _module(self, now: MemoryErrors) -> Iterator[Seen]:
        first = self._memory.setdefault(now.place, now)
        facts = {"before": first._asdict(), "after": now._asdict()}
        what = "have the memory module replaced; leave the node out"
        for name, most, severity in (("uncorrected", 0, "error"), ("corrected", MOST_CORRECTED, "warn")):
            new = _grown(getattr(first, name), getattr(now, name)) or 0
            if new > most:
                text = f"{new} {name} errors {_SINCE}"
                yield Seen("hardware-memory", severity, now.place, name, text, what, total=new, facts=facts)


def _packages(root: str) -> Iterator[tuple[int, str]]:
    """Yield each processor and the file that counts how often it was too hot, where the kernel has one."""
    base = os.path.join(root, "sys/devices/system/cpu")
    known = set()
    for name in sysfs.names(base):
        place = os.path.join(base, name, "thermal_throttle/package_throttle_count")
        if not re.fullmatch(r"cpu\d+", name) or sysfs.number(place) is None:
            continue
        package = sysfs.number(os.path.join(base, name, "topology/physical_package_id"))
        if package is not None and package not in known:
            known.add(package)
            yield package, place


def _new_of(first: Gpu, now: Gpu) -> Gpu:
    """Return the GPU with what is new of its memory's errors alone."""
    more_retired = _grown(first.retired_pages, now.retired_pages)
    banks = {name: by for name, by in (now.remap_banks or {}).items() if by > (first.remap_banks or {}).get(name, 0)}
    return replace(
        now,
        ecc_uncorrectable=_grown(first.ecc_uncorrectable, now.ecc_uncorrectable),
        ecc_corrected=_grown(first.ecc_corrected, now.ecc_corrected),
        retired_pages=now.retired_pages if more_retired else None,
        remap_banks=banks,
        remap_pending=bool(now.remap_pending) and not first.remap_pending,
        remap_failure=bool(now.remap_failure) and not first.remap_failure,
        retired_pending=bool(now.retired_pending) and not first.retired_pending,
        sram_threshold_exceeded=bool(now.sram_threshold_exceeded) and not first.sram_threshold_exceeded,
    )


def _memory_of(gpu: Gpu) -> dict[str, Any]:
    return {name: getattr(gpu, name) for name in _MEMORY if getattr(gpu, name) is not None}


def _grown(first: Optional[int], now: Optional[int]) -> Optional[int]:
    """Return by how much a counter has grown; one that was reset by what it holds now; None: not known."""
    if first is None or now is None:
        return None
    return now - first if now >= first else now
