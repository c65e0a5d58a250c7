"""What a job requires of each GPU, against what is known of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cordee.core.documents.gpu_models import GpuFacts, gpu_facts
from cordee.core.units import format_size, parse_size
from cordee.job.profile import GpuModel

_PART = re.compile(r"(memory|capability|model)\s*(?:>=|=)\s*(.+)\Z")


def meets(requirement: str | None, model: str | None, known: Mapping[str, GpuModel]) -> bool | None:
    """Return whether GPUs of a model meet a requirement such as `memory >= 24GB, capability >= 8.0`; None: not known."""
    answers = [_meets(part.strip(), model, known) for part in (requirement or "").split(",") if part.strip()]
    if False in answers:
        return False
    return None if None in answers else True


def least_memory(requirement: str | None) -> int | None:
    """Return the bytes of memory that a requirement asks each GPU for; None: it does not."""
    matches = [match for part in (requirement or "").split(",") if (match := _PART.match(part.strip()))]
    return next((parse_size(match.group(2).strip()) for match in matches if match.group(1) == "memory"), None)


def describe(model: str, known: Mapping[str, GpuModel]) -> str:
    """Return a model with what is known of it: `a100 (40 to 80 GB, capability 8.0)`."""
    facts = facts_of(model, known)
    parts = []
    if facts.memory is not None:
        least, most = map(format_size, facts.memory)
        parts.append(least if least == most else f"{least} to {most}")
    if facts.capability is not None:
        parts.append(f"capability {facts.capability:.1f}")
    return f"{model} ({', '.join(parts)})" if parts else f"{model} (nothing known of it)"


def facts_of(model: str, known: Mapping[str, GpuModel]) -> GpuFacts:
    """Return what is known of a model: what the profile says of it, else what its name says."""
    given = next((facts for key, facts in known.items() if key.lower() == model.lower()), None)
    return GpuFacts((given.memory, given.memory), given.capability) if given else gpu_facts(model)


def _meets(part: str, model: str | None, known: Mapping[str, GpuModel]) -> bool | None:
    match = _PART.match(part)
    if match is None or model is None:
        return None
    kind, wanted = match.group(1), match.group(2).strip()
    if kind == "model":
        return model.lower() == wanted.lower()
    facts = facts_of(model, known)
    if kind == "capability":
        return None if facts.capability is None else facts.capability >= float(wanted)
    if facts.memory is None:
        return None
    size_bytes = parse_size(wanted)
    if facts.memory[0] >= size_bytes:
        return True
    return False if facts.memory[1] < size_bytes else None
