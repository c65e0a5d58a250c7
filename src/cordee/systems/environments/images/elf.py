"""For which machine a root was made, by the first bytes of a program in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from cordee.machine.foreign_files import regular

# e_machine of ELF headers (elf.h), as OCI spells the architectures.
_MACHINES = {0x03: "386", 0x28: "arm", 0x3E: "amd64", 0xB7: "arm64", 0x15: "ppc64le", 0x16: "s390x", 0xF3: "riscv64"}
_HEADER_BYTES = 20
_LITTLE_ENDIAN = 1
# Where nearly every image has a program that is no symbolic link.
_PROGRAMS = ("usr/bin/bash", "usr/bin/dash", "bin/bash", "bin/busybox", "bin/dash", "usr/bin/env", "usr/bin/coreutils")


def architecture_of_file(header: bytes) -> str | None:
    """Return the architecture that the header of a program names; None: it is no ELF file, or for another machine."""
    if len(header) < _HEADER_BYTES or header[:4] != b"\x7fELF":
        return None
    order = "little" if header[5] == _LITTLE_ENDIAN else "big"
    return _MACHINES.get(int.from_bytes(header[18:20], order))  # type: ignore[arg-type]


def architecture_of_folder(root: Path) -> str | None:
    """Return the architecture of a root folder; None: none of the usual programs is in it."""
    for program in _PROGRAMS:
        path = root / program
        if path.is_file() and os.path.realpath(path).startswith(os.path.realpath(root) + os.sep):
            try:
                with open(path, "rb", opener=regular) as file:
                    found = architecture_of_file(file.read(_HEADER_BYTES))
            except OSError:
                continue
            if found:
                return found
    return None


def architecture_of_squashfs(path: Path) -> str | None:
    """Return the architecture of a squashfs file; None: it cannot be said, also for want of unsquashfs."""
    tool = shutil.which("unsquashfs")
    if tool is None:
        return None
    command = [tool, "-cat", str(path), *_PROGRAMS]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        header = process.stdout.read(_HEADER_BYTES)
        process.kill()
    return architecture_of_file(header)
