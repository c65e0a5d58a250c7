"""The values of sbatch's options: times, sizes, counts of nodes and GPUs, signals."""

from __future__ import annotations

import re
import signal as signals

_NODES = re.compile(r"(\d+)(?:-(\d+))?\Z")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?\Z")
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?\Z", re.IGNORECASE)
_GPUS = re.compile(r"(?:([A-Za-z][\w.-]*):)?(\d+)\Z")
_SIGNAL = re.compile(r"(?:([RB]{1,2}):)?(?:SIG)?(\w+)(?:@(\d+))?\Z", re.IGNORECASE)
_DEFAULT_GRACE_S = 60
_MOST = 1_000_000


def read_count(text: str) -> int | None:
    """Return a number from 1, None when it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,7}", text) and 1 <= int(text) <= _MOST else None


def read_nodes(text: str) -> tuple[int, int] | None:
    """Return (fewest, most) of `4` or `2-4`; None for other forms."""
    match = _NODES.match(text)
    if match is None:
        return None
    fewest, most = read_count(match.group(1)), read_count(match.group(2) or match.group(1))
    return (fewest, most) if fewest and most and fewest <= most else None


def read_time(text: str) -> int | None:
    """Return the seconds of `min`, `min:s`, `h:m:s`, `d-h`, `d-h:m` or `d-h:m:s`; None for no limit and other forms."""
    match = _CLOCK.match(text)
    if match is None or len(text) > 30:
        return None
    days, *rest = match.groups()
    numbers = [int(part) for part in rest if part is not None]
    units = (
        {1: (3600,), 2: (3600, 60), 3: (3600, 60, 1)} if days is not None else {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}
    )
    seconds = int(days or 0) * 86400 + sum(a * b for a, b in zip(numbers, units[len(numbers)], strict=True))
    return seconds if 0 < seconds < 10**9 else None


def read_memory(text: str) -> int | None:
    """Return the bytes of `64G` (a power of 1024; without a unit MiB); None for 0, which is all there is, and others."""
    match = _MEMORY.match(text)
    if match is None or len(text) > 16:
        return None
    return int(match.group(1)) << {"k": 10, "": 20, "m": 20, "g": 30, "t": 40}[match.group(2).lower()] or None


def read_gpus(text: str) -> tuple[int, str | None] | None:
    """Return (count, model) of `4` or `a100:4`; None for other forms."""
    match = _GPUS.match(text)
    return (int(match.group(2)), match.group(1)) if match and int(match.group(2)[:8]) <= _MOST else None


def read_gres(text: str) -> tuple[tuple[int, str | None] | None, list[str]]:
    """Return the GPUs of `gpu:a100:4,nvme:1`, and what else is asked for."""
    gpus: tuple[int, str | None] | None = None
    others = []
    for part in text.split(","):
        head, _, rest = part.removeprefix("gres:").removeprefix("gres/").partition(":")
        rest = re.sub(r"\((?:S|IDX):.*\)\Z", "", rest)
        if head != "gpu":
            others.append(part)
        elif re.fullmatch(r"[A-Za-z][\w.-]*", rest):
            gpus = (1, rest)
        else:
            gpus = read_gpus(rest or "1")
    return gpus, [part for part in others if part]


def read_signal(text: str) -> tuple[str, int, bool] | None:
    """Return (name without SIG, seconds before the end, whether only the batch shell gets it); None for other forms."""
    match = _SIGNAL.match(text)
    if match is None:
        return None
    whom, name, seconds = match.groups()
    if name.isdigit():
        known = {number.value: number.name for number in signals.Signals}
        name = known.get(int(name[:4]), "").removeprefix("SIG")
    name = name.upper()
    if not hasattr(signals, f"SIG{name}") or name.startswith("_") or name in ("KILL", "STOP"):
        return None
    grace = int(seconds[:7]) if seconds else _DEFAULT_GRACE_S
    return name, grace, "B" in (whom or "").upper()
