"""Faults of a process's surroundings: a clock that is wrong, reads that are slow, peers that cannot be
reached, folders that cannot be listed, places that are full.

A small C library does it, put in front of the C library's own functions by LD_PRELOAD; the process is not changed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from cordee.core.errors import CordeeError

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
    slow_peers: Sequence[str] = (),
    slow_node: str | None = None,
    slow_pause_s: float = 0.0,
    own_address: str | None = None,
    cut_off: str | None = None,
    unseen_while: Path | None = None,
    no_room_in: Sequence[str] = (),
    still_in: Path | None = None,
    still_while: Path | None = None,
    read_only_while: Path | None = None,
) -> dict[str, str]:
    """Return the variables that give a process, and all that it starts, these faults.

    Args:
        library: what `build_faults` returned.
        clock_ahead_s: by how much its clock is ahead.
        read_pause_s: how much longer each positioned read takes.
        send_pause_s: it sends more than 4 KiB only once in that time.
        slow_peers: addresses to which `slow_pause_s` holds instead.
        slow_node: a node of Slurm on which `slow_pause_s` holds to everybody.
        own_address: it connects from this address, such as 127.0.0.3.
        cut_off: processes with this word on their command line can neither connect nor listen.
        unseen_while: while this file is there, nobody can see who owns a run: listing its claims is an EIO.
        still_in, still_while: while the second is there, opening, writing and listing below the first do not come back.
        read_only_while: while it is there, nothing below `still_in` can be made or opened for writing: EROFS.
        no_room_in: folders below which no file gets the blocks that it asks for.
    """
    given = {
        "FAULT_CLOCK_AHEAD_S": str(clock_ahead_s or ""),
        "FAULT_READ_PAUSE_US": _microseconds(read_pause_s),
        "FAULT_SEND_PAUSE_US": _microseconds(send_pause_s),
        "FAULT_SLOW_PEERS": "".join(f"{peer}," for peer in slow_peers),
        "FAULT_SLOW_NODE": slow_node or "",
        "FAULT_SLOW_PAUSE_US": _microseconds(slow_pause_s),
        "FAULT_OWN_ADDRESS": own_address or "",
        "FAULT_NO_PEERS": cut_off or "",
        "FAULT_UNSEEN_WHILE": str(unseen_while or ""),
        "FAULT_STILL_IN": str(still_in or ""),
        "FAULT_STILL_WHILE": str(still_while or ""),
        "FAULT_READ_ONLY_WHILE": str(read_only_while or ""),
        "FAULT_NO_ROOM_IN": "".join(f"{folder}:" for folder in no_room_in),
    }
    return {"LD_PRELOAD": str(library), **{name: value for name, value in given.items() if value}}


def _microseconds(seconds: float) -> str:
    return str(round(seconds * 1e6)) if seconds else ""
