"""What a job requires of each GPU, against what is known of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cordee.spec.profile import GpuModel
from cordee.units import parse_size

_PART = re.compile(r"(memory|capability|model)\s*(?:>=|=)\s*(.+)\Z")


def meets(requirement: str | None, model: str | None, known: Mapping[str, GpuModel]) -> bool | None:
    """Return whether GPUs of a model meet a requirement such as `memory >= 24GB, capability >= 8.0`; None: not known."""
    answers = [_meets(part.strip(), model, known) for part in (requirement or "").split(",") if part.strip()]
    if False in answers:
        return False
    return None if None in answers else True


def _meets(part: str, model: str | None, known: Mapping[str, GpuModel]) -> bool | None:
    match = _PART.match(part)
    if match is None or model is None:
        return None
    kind, wanted = match.group(1), match.group(2).strip()
    if kind == "model":
        return model.lower() == wanted.lower()
    facts = next((facts for name, facts in known.items() if name.lower() == model.lower()), None)
    if facts is None:
        return None
    if kind == "memory":
        return facts.memory >= parse_size(wanted)
    return None if facts.capability is None else facts.capability >= float(wanted)
