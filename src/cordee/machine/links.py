"""The network ports of a node: InfiniBand, RoCE, Slingshot and Ethernet, as /sys/class shows them."""

from __future__ import annotations

import fnmatch
import os
from typing import NamedTuple, Optional

from cordee.machine import sysfs

# Packets that a port drops for want of room within some seconds are congestion; more than this is worth a word.
MOST_DROPS = 1000
_LOOPBACK = 772
_SLINGSHOT = "hsn*"
# Errors of the wire and of the port. Sources: InfiniBand specification 16.1.3.5 (PortCounters) and the kernel's
# Documentation/ABI/stable/sysfs-class-infiniband, Documentation/ABI/testing/sysfs-class-net(-statistics).
_INFINIBAND_ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
_INFINIBAND_DROPS = ("port_xmit_discards", "VL15_dropped")
_ETHERNET_ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors")
_ETHERNET_DROPS = ("rx_dropped", "tx_dropped", "rx_fifo_errors", "rx_missed_errors")


class FabricPort(NamedTuple):
    """One port.

    Attributes:
        name: `mlx5_0/1` (device and port) or the network interface's name.
        kind: `infiniband`, `roce`, `slingshot` or `ethernet`.
        state: of the protocol: `ACTIVE`, `DOWN`, `up`, ...
        physical: of the cable: `LinkUp`, `Polling`, `carrier`, ..., or None when the kernel does not say.
        up: whether packets can pass.
        disabled: somebody has switched it off.
        rate_gbit_per_s: the rate agreed with the other end, or None.
        folder: where its counters are.
    """

    name: str
    kind: str
    state: str
    physical: Optional[str]
    up: bool
    disabled: bool
    rate_gbit_per_s: Optional[float]
    folder: str

    def describe(self) -> str:
        """Return state, cable and rate for a person."""
        words = [self.state] + ([self.physical] if self.physical else [])
        return ", ".join(words) + (f", {self.rate_gbit_per_s:g} Gbit/s" if self.rate_gbit_per_s else "")


class Counters(NamedTuple):
    """What has gone wrong on a port since it was reset: errors of the wire, drops for want of room, times it went down."""

    errors: dict[str, int]
    drops: dict[str, int]
    flaps: int


def read_links(root: str, patterns: Optional[list[str]] = None) -> list[FabricPort]:
    """Return the ports of a node, sorted by name.

    Args:
        root: where the host's /sys is.
        patterns: names or shell patterns of ports, devices or interfaces; without any, InfiniBand and RoCE ports and
            the interfaces `hsn*`.
    """
    links = _infiniband(os.path.join(root, "sys/class/infiniband")) + _interfaces(os.path.join(root, "sys/class/net"))
    links.sort()
    if patterns is None:
        return [link for link in links if link.kind != "ethernet"]
    return [link for link in links if any(matches(link.name, pattern) for pattern in patterns)]


def matches(name: str, pattern: str) -> bool:
    """Return whether a port's name, or its device's, is meant by a pattern."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name.partition("/")[0], pattern)


def read_counters(link: FabricPort) -> Counters:
    """Return a port's counters; those that the kernel does not have are left out."""
    if link.kind in ("infiniband", "roce"):
        folder = os.path.join(link.folder, "counters")
        errors, drops = _numbers(folder, _INFINIBAND_ERRORS), _numbers(folder, _INFINIBAND_DROPS)
        return Counters(errors, drops, errors.get("link_downed", 0))
    folder = os.path.join(link.folder, "statistics")
    flaps = sysfs.number(os.path.join(link.folder, "carrier_down_count"))
    if flaps is None:
        flaps = (sysfs.number(os.path.join(link.folder, "carrier_changes")) or 0) // 2
    return Counters(_numbers(folder, _ETHERNET_ERRORS), _numbers(folder, _ETHERNET_DROPS), flaps)


def growth(before: Counters, after: Counters) -> Counters:
    """Return what each counter has grown by, where it has; one that was reset meanwhile has grown by what it holds now."""
    return Counters(
        _differences(before.errors, after.errors),
        _differences(before.drops, after.drops),
        _difference(before.flaps, after.flaps),
    )


def list_counters(grown: dict[str, int]) -> str:
    """Return `rx_errors +3, tx_errors +1`."""
    return ", ".join(f"{name} +{value}" for name, value in sorted(grown.items()))


def _differences(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    grown = {name: _difference(before[name], value) for name, value in after.items() if name in before}
    return {name: value for name, value in grown.items() if value}


def _difference(before: int, after: int) -> int:
    return after - before if after >= before else after


def _infiniband(folder: str) -> list[FabricPort]:
    found = []
    for device in sysfs.names(folder):
        for port in sysfs.names(os.path.join(folder, device, "ports")):
            place = os.path.join(folder, device, "ports", port)
            state = _after_colon(sysfs.text(os.path.join(place, "state"))) or "unknown"
            physical = _after_colon(sysfs.text(os.path.join(place, "phys_state")))
            layer = sysfs.text(os.path.join(place, "link_layer")) or "InfiniBand"
            found.append(
                FabricPort(
                    name=f"{device}/{port}",
                    kind="infiniband" if layer == "InfiniBand" else "roce",
                    state=state,
                    physical=physical,
                    up=state == "ACTIVE" and physical in (None, "LinkUp"),
                    disabled=physical in ("Disabled", "Sleep"),
                    rate_gbit_per_s=_infiniband_rate(sysfs.text(os.path.join(place, "rate"))),
                    folder=place,
                )
            )
    return found


def _interfaces(folder: str) -> list[FabricPort]:
    found = []
    for name in sysfs.names(folder):
        place = os.path.join(folder, name)
        if sysfs.number(os.path.join(place, "type")) == _LOOPBACK:
            continue
        state = sysfs.text(os.path.join(place, "operstate")) or "unknown"
        carrier = sysfs.number(os.path.join(place, "carrier"))
        flags = _hexadecimal(sysfs.text(os.path.join(place, "flags")))
        speed = sysfs.number(os.path.join(place, "speed"))
        found.append(
            FabricPort(
                name=name,
                kind="slingshot" if fnmatch.fnmatchcase(name, _SLINGSHOT) else "ethernet",
                state=state,
                physical=None if carrier is None else "carrier" if carrier else "no carrier",
                up=state == "up" or (state == "unknown" and carrier == 1),
                disabled=flags is not None and not flags & 1,
                rate_gbit_per_s=speed / 1000 if speed is not None and speed > 0 else None,
                folder=place,
            )
        )
    return found


def _after_colon(content: Optional[str]) -> Optional[str]:
    """Return `ACTIVE` of `4: ACTIVE`."""
    return content.partition(":")[2].strip() or content if content else None


def _infiniband_rate(content: Optional[str]) -> Optional[float]:
    """Return 200.0 of `200 Gb/sec (4X HDR)`."""
    try:
        return float(content.split()[0]) if content else None
    except ValueError:
        return None


def _hexadecimal(content: Optional[str]) -> Optional[int]:
    try:
        return int(content, 16) if content else None
    except ValueError:
        return None


def _numbers(folder: str, keys: tuple[str, ...]) -> dict[str, int]:
    values = {key: sysfs.number(os.path.join(folder, key)) for key in keys}
    return {key: value for key, value in values.items() if value is not None}
