"""Numbers, times and sizes in the fields that Slurm's commands print; None for what is not there."""

from __future__ import annotations

import re
from datetime import datetime

from cordee.backends.slurm.limits import MEMORY_UNITS
from cordee.core.errors import CordeeError
from cordee.core.units import parse_duration

NOTHING = ("", "(null)", "N/A", "Unknown", "None", "NONE", "none", "UNLIMITED", "INVALID")


def gpus(gres: str) -> int:
    """Return the GPUs in `gpu:a100:4(S:0-3),nic:2` or `gres/gpu:4`."""
    return sum(int(number or 1) for number in re.findall(r"\bgpu(?::[^:,(]+)*?(?:[:=](\d+))?(?=[,(]|$)", gres))


def text_of(value: str | None) -> str:
    """Return a field's text, empty when Slurm writes that there is none."""
    return "" if value is None or value in NOTHING else value


def whole(text: str | None) -> int | None:
    """Return a whole number, None for anything else."""
    return int(text) if text and text.isdigit() else None


def number(text: str) -> float | None:
    """Return a number, None for anything else."""
    try:
        return float(text)
    except ValueError:
        return None


def moment(text: str | None) -> float | None:
    """Return epoch seconds of a time that Slurm writes in this machine's zone."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return None


def seconds(text: str | None) -> float | None:
    """Return seconds; Slurm writes `[D-]HH:MM:SS` and, in limits, `MM:SS`."""
    if text is None or text in NOTHING or text == "Partition_Limit":
        return None
    try:
        return parse_duration(text) if ":" in text else 60.0 * int(text)
    except (ValueError, CordeeError):
        return None


def size_bytes(text: str | None) -> int | None:
    """Return bytes of `16000M`, `4Gn`, `1.5T` or `7324K`; a bare number is MiB as Slurm reads it."""
    found = re.match(r"([\d.]+)([KMGTP]?)", text or "")
    if found is None or number(found.group(1)) is None:
        return None
    return int(float(found.group(1)) * MEMORY_UNITS[found.group(2) or "M"]) or None
