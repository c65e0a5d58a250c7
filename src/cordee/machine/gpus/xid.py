"""What the XID numbers mean that NVIDIA's driver writes into the kernel log.

Numbers and names follow NVIDIA's public catalogue (docs.nvidia.com/deploy/xid-errors); whose fault each is and whether it
excludes a node is our judgement of its "immediate action": what asks for a reset, a reboot or a repair does.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from cordee.machine.gpus.model import bus_id

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
_RECOVERED = re.compile(r"to 0x0 \(none\)", re.IGNORECASE)


class Xid(NamedTuple):
    """One kind of XID.

    Attributes:
        number, name: as NVIDIA gives them.
        scope: what is at fault: `device`, `link` or `user` (the program that ran).
        status: what it makes of a node: `fail` or `warn`.
        action: what to do, for a person.
    """

    number: int
    name: str
    scope: str
    status: str
    action: str


_RESTART = "restart the program; look for its bug if it comes back"
_RESET = "reset the GPU"
_REBOOT = "reboot the node; if it comes back, reseat or replace the GPU"
_REPLACE = "run the vendor's diagnostics and replace the GPU"
_LINK = "reset all GPUs of the fabric; look at the NVLinks and switches"
_WATCH = "watch whether it comes more often"

_ROWS = (
    (8, "GPU stopped processing", "user", "warn", _RESTART),
    (11, "invalid or corrupted push buffer stream", "user", "warn", _RESTART),
    (13, "graphics engine exception", "user", "warn", _RESTART),
    (31, "GPU memory page fault", "user", "warn", _RESTART),
    (32, "invalid or corrupted push buffer stream", "user", "warn", _RESTART),
    (38, "driver firmware error", "device", "warn", _RESET),
    (43, "GPU stopped processing", "user", "warn", _RESTART),
    (45, "preemptive cleanup after an earlier error", "user", "warn", "look at the error before it"),
    (46, "GPU stopped processing", "device", "fail", _RESET),
    (48, "double bit ECC error", "device", "fail", _RESET),
    (54, "auxiliary power is not connected", "device", "fail", "look at the power cables"),
    (61, "internal micro-controller breakpoint", "device", "fail", _RESET),
    (62, "internal micro-controller halt", "device", "fail", _RESET),
    (63, "memory row marked for remapping, or page retired", "device", "fail", _RESET),
    (64, "remapping a memory row or retiring a page failed", "device", "fail", _REPLACE),
    (68, "video processor exception", "user", "warn", _RESTART),
    (69, "graphics engine class error", "user", "warn", _RESTART),
    (74, "NVLink error", "link", "fail", _LINK),
    (79, "GPU has fallen off the bus", "device", "fail", _REBOOT),
    (92, "high rate of single bit ECC errors", "device", "warn", _WATCH),
    (94, "contained ECC error", "device", "fail", _RESET),
    (95, "uncontained ECC error", "device", "fail", _RESET),
    (109, "context switch timeout", "device", "fail", _RESET),
    (110, "security fault", "device", "fail", _RESET),
    (119, "GSP RPC timeout", "device", "fail", _RESET),
    (120, "GSP error", "device", "fail", _RESET),
    (121, "C2C link corrected error", "link", "warn", _WATCH),
    (122, "SPI RPC read failure", "device", "warn", _WATCH),
    (123, "SPI RPC write failure", "device", "warn", _WATCH),
    (137, "NVLink fault of a remote access", "user", "warn", _RESTART),
    (140, "unrecovered ECC error", "device", "fail", _RESET),
    (143, "GPU initialization failure", "device", "fail", _RESET),
    (144, "NVLink error in the SAW", "link", "fail", _LINK),
    (145, "NVLink error in the RLW", "link", "fail", _LINK),
    (146, "NVLink error in the TLW", "link", "fail", _LINK),
    (147, "NVLink error in the TREX", "link", "fail", _LINK),
    (148, "NVLink error in the NVLPW control", "link", "fail", _LINK),
    (149, "NVLink error in the NETIR", "link", "fail", _LINK),
    (150, "NVLink error in the MSE", "link", "fail", _LINK),
    (154, "the driver asks for a recovery action", "device", "fail", "do what the message asks for"),
)

XIDS: dict[int, Xid] = {row[0]: Xid(*row) for row in _ROWS}


def xid(number: int) -> Xid:
    """Return what a number means; one that the table lacks is warned of."""
    unknown = Xid(number, "not in Cordée's table", "device", "warn", "look it up in NVIDIA's catalogue of XIDs")
    return XIDS.get(number, unknown)


class DriverMessage(NamedTuple):
    """What NVIDIA's driver has written of a GPU, or of an NVSwitch: what it means, the PCI address, and its words."""

    meaning: Xid
    address: str
    switch: bool
    words: str


def driver_message(line: str) -> Optional[DriverMessage]:
    """Return what a line of the kernel log says of a GPU or an NVSwitch; None: it is another one, or it takes back an earlier one."""
    for pattern, switch in ((_XID, False), (_SXID, True)):
        match = pattern.search(line)
        if match is None:
            continue
        number, words = int(match[2]), match[3] or ""
        if number == 154 and not switch and _RECOVERED.search(words):
            return None
        meaning = _switch_meaning(number, words) if switch else xid(number)
        return DriverMessage(meaning, bus_id(match[1]) or match[1], switch, words[:200])
    return None


def _switch_meaning(number: int, words: str) -> Xid:
    grave = "fatal" in words.lower() and "non-fatal" not in words.lower()
    action = "reset all GPUs and switches of the fabric" if grave else _WATCH
    return Xid(number, "error of an NVSwitch", "link", "fail" if grave else "warn", action)
