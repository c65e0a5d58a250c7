r"""The first process of a container: it lives as long as somebody holds the other end of a pipe.

An image may hold no program that could do this, or none at all, so it is carried here: 224 bytes of a static ELF file, made of

    rt_sigaction(SIGCHLD, {SIG_IGN}, NULL, 8)       children that are left to it vanish when they end
    do result = read(3, buffer, 1)
    while (result > 0 || result == -EINTR)
    exit_group(0)

When the process that holds the pipe ends, by whatever, the kernel closes it, this one ends, and the container with it.
"""

from __future__ import annotations

import os
import struct

# The file descriptors that it is given: the pipe's end for reading, and the program itself.
PIPE, PROGRAM = 3, 4
COMMAND = f"/proc/self/fd/{PROGRAM}"
_ACTION = struct.pack("<4Q", 1, 0, 0, 0)
# By what os.uname() calls the machine: its number in ELF files, and the instructions in front of the signal's action.
_CODE = {
    "x86_64": (
        62,
        "b80d000000bf11000000488d353700000031d241ba080000000f0531c0bf03000000488d"
        "742480ba010000000f0583f8007fe883f8fc74e3b8e700000031ff0f050f1f8000000000",
    ),
    "aarch64": (
        183,
        "c81080d2200280d201020010020080d2030180d2010000d4e80780d2600080d2e10302d1"
        "220080d2010000d41f0000714cffff541f10003100ffff54c80b80d2000080d2010000d4",
    ),
}
_BASE, _HEADER_BYTES, _SEGMENT_BYTES = 0x400000, 64, 56


def program(machine: str = "") -> bytes:
    """Return the ELF file for a machine (empty: this one); empty when there is none for it."""
    number, code = _CODE.get(machine or os.uname().machine, (0, ""))
    if not number:
        return b""
    content = bytes.fromhex(code) + _ACTION
    start = _HEADER_BYTES + _SEGMENT_BYTES
    size = start + len(content)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, number, 1, _BASE + start, _HEADER_BYTES, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return header + segment + content
