"""What a node's memory controllers and processors have reported since it booted."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Optional

from cordee.machine import sysfs

# Corrected errors of one memory module from which on it is worth a word; uncorrected ones always are.
MOST_CORRECTED = 100
_CONTROLLERS = "sys/devices/system/edac/mc"


class MemoryErrors(NamedTuple):
    """Errors of one memory module, or of a controller that cannot say which: the kernel's EDAC counters.

    Attributes:
        place: `mc0 dimm3 (CPU_SrcID#0_MC#0_Chan#1_DIMM#0)`.
        corrected, uncorrected: since the driver was loaded.
    """

    place: str
    corrected: int
    uncorrected: int


def read_memory_errors(root: str) -> Optional[list[MemoryErrors]]:
    """Return the counters of all memory controllers, or None when the kernel has none to show.

    Source: the kernel's Documentation/admin-guide/ras.rst.
    """
    base = os.path.join(root, _CONTROLLERS)
    controllers = [name for name in sysfs.names(base) if re.fullmatch(r"mc\d+", name)]
    found: list[MemoryErrors] = []
    for controller in controllers:
        found += _controller(os.path.join(base, controller), controller)
    return found or None


def machine_check_exceptions(root: str) -> Optional[int]:
    """Return how many machine check exceptions the processors have raised, or None when the kernel does not say."""
    content = sysfs.whole(os.path.join(root, "proc/interrupts")) or ""
    for line in content.splitlines():
        words = line.split()
        if words[:1] == ["MCE:"]:
            return sum(int(word) for word in words[1:] if word.isdigit())
    return None


def poisoned_bytes(root: str) -> Optional[int]:
    """Return the bytes of memory that the kernel has taken out of use as broken, or None."""
    content = sysfs.text(os.path.join(root, "proc/meminfo")) or ""
    match = re.search(r"^HardwareCorrupted:\s*(\d+) kB", content, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def _controller(folder: str, name: str) -> list[MemoryErrors]:
    modules = []
    for module in sysfs.names(folder):
        if re.fullmatch(r"(dimm|rank)\d+", module):
            place = os.path.join(folder, module)
            label = sysfs.text(os.path.join(place, "dimm_label"))
            modules.append(
                MemoryErrors(
                    f"{name} {module}" + (f" ({label})" if label else ""),
                    sysfs.number(os.path.join(place, "dimm_ce_count")) or 0,
                    sysfs.number(os.path.join(place, "dimm_ue_count")) or 0,
                )
            )
    corrected = sysfs.number(os.path.join(folder, "ce_count"))
    uncorrected = sysfs.number(os.path.join(folder, "ue_count"))
    if corrected is None and uncorrected is None:
        return modules
    known = sum(module.corrected for module in modules), sum(module.uncorrected for module in modules)
    rest = max(0, (corrected or 0) - known[0]), max(0, (uncorrected or 0) - known[1])
    if modules and not any(rest):
        return modules
    return [*modules, MemoryErrors(f"{name}, module unknown" if modules else name, *rest)]
