"""A host's kernel log for tests, below a folder that stands for the host's root."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

UPTIME_S = 30 * 86400.0


def write_kmsg(root: Path | str, lines: Iterable[tuple[float, str]], uptime_s: float = UPTIME_S) -> None:
    """Write /dev/kmsg and /proc/uptime below `root`.

    Args:
        root: the folder.
        lines: how many hours ago each was written, and its text.
        uptime_s: how long ago the node was started.
    """
    records = [
        f"4,{number},{round((uptime_s - hours * 3600) * 1e6)},-;{text}\n" for number, (hours, text) in enumerate(lines)
    ]
    _write(Path(root) / "dev" / "kmsg", "4,0,0,-;Linux version 6.1.0\n" + "".join(records))
    _write(Path(root) / "proc" / "uptime", f"{uptime_s:.2f} 0.00\n")


def append_kmsg(root: Path | str, *lines: str) -> None:
    """Write lines now to the log that `write_kmsg` has begun, all at once as far as whoever reads it sees."""
    path = Path(root) / "dev" / "kmsg"
    with path.open("ab", buffering=0) as file:
        file.write("".join(f"4,{number},0,-;{text}\n" for number, text in enumerate(lines)).encode())


def write_log_file(root: Path | str, lines: Iterable[tuple[float, str]], iso: bool = True) -> None:
    """Write /var/log/kern.log below `root`, with times as rsyslog writes them: ISO 8601, or the traditional form."""
    pattern = "%Y-%m-%dT%H:%M:%S.000000%z" if iso else "%b %e %H:%M:%S"
    records = [
        f"{time.strftime(pattern, time.localtime(time.time() - hours * 3600))} host kernel: [ 12.345678] {text}\n"
        for hours, text in lines
    ]
    _write(Path(root) / "var" / "log" / "kern.log", "".join(records))


def xid_line(bus_id: str, number: int, words: str = "pid=4711, name=python") -> str:
    """Return what NVIDIA's driver writes; the address is like `0000:10:00`."""
    return f"NVRM: Xid (PCI:{bus_id}): {number}, {words}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
