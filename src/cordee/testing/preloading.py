"""Faults of a process's surroundings: a clock that is wrong, reads that are slow, peers that cannot be reached.

A small C library does it, put in front of the C library's own functions by LD_PRELOAD; the process is not changed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from cordee.errors import CordeeError

_SOURCE = Path(__file__).with_name("preloaded") / "faults.c"


def build_faults(folder: Path) -> Path:
    """Compile the library into `folder` and return it.

    Raises:
        CordeeError: there is no C compiler, or it failed.
    """
    library = folder / "libfaults.so"
    command = [
        "cc",
        "-O1",
        "-std=gnu11",
        "-Wall",
        "-Werror",
        "-fPIC",
        "-shared",
        "-o",
        str(library),
        str(_SOURCE),
        "-ldl",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CordeeError(f"no C compiler: {error}", given="cc", next="install gcc") from None
    if done.returncode:
        raise CordeeError(f"the library of faults cannot be compiled: {done.stderr.strip()[-2000:]}")
    return library


def faulty(
    library: Path,
    *,
    clock_ahead_s: float = 0.0,
    read_pause_s: float = 0.0,
    send_pause_s: float = 0.0,
    cut_off: str | None = None,
) -> dict[str, str]:
    """Return the variables that give a process, and all that it starts, these faults.

    Args:
        library: what `build_faults` returned.
        clock_ahead_s: by how much its clock is ahead.
        read_pause_s: how much longer each positioned read takes.
        send_pause_s: how much longer each sending of more than 4 KiB takes.
        cut_off: processes with this word on their command line can neither connect nor listen.
    """
    given = {
        "FAULT_CLOCK_AHEAD_S": str(clock_ahead_s),
        "FAULT_READ_PAUSE_US": str(round(read_pause_s * 1e6)),
        "FAULT_SEND_PAUSE_US": str(round(send_pause_s * 1e6)),
    }
    found = {name: value for name, value in given.items() if float(value)}
    if cut_off is not None:
        found["FAULT_NO_PEERS"] = cut_off
    return {"LD_PRELOAD": str(library), **found}
