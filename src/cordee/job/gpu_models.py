"""What is known of GPU models by their names, for sites that say no more than a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cordee.job.profile import GpuModel

_GIB = 1 << 30
# Compute capability, and the sizes of memory in GiB that a model is built with.
_MODELS: dict[str, tuple[float | None, tuple[int, ...]]] = {
    "gb200": (10.0, (180, 192)),
    "b200": (10.0, (180, 192)),
    "gh200": (9.0, (96, 141)),
    "h200": (9.0, (141,)),
    "h100": (9.0, (64, 80, 94, 96)),
    "l40s": (8.9, (48,)),
    "l40": (8.9, (48,)),
    "l4": (8.9, (24,)),
    "4090": (8.9, (24,)),
    "a6000": (8.6, (48,)),
    "a100": (8.0, (40, 64, 80)),
    "a40": (8.6, (48,)),
    "a30": (8.0, (24,)),
    "a10": (8.6, (24,)),
    "3090": (8.6, (24,)),
    "v100": (7.0, (16, 32)),
    "t4": (7.5, (16,)),
    "p100": (6.0, (12, 16)),
    "mi300x": (None, (192,)),
    "mi300a": (None, (128,)),
    "mi250x": (None, (64,)),
    "mi250": (None, (64,)),
}
_MEMORY = re.compile(r"(\d{2,3})gi?b?(?![a-z0-9])")


@dataclass(frozen=True)
class GpuFacts:
    """What one GPU is: `memory` the smallest and the largest that it may have, in bytes; None is not known."""

    memory: tuple[int, int] | None = None
    capability: float | None = None


def gpu_facts(model: str, known: Mapping[str, GpuModel]) -> GpuFacts:
    """Return what is known of a model: what the profile says of it, else what its name says (`a100_80gb`)."""
    name = model.lower()
    given = next((facts for key, facts in known.items() if key.lower() == name), None)
    if given is not None:
        return GpuFacts((given.memory, given.memory), given.capability)
    words = re.split(r"[^a-z0-9]+", name)
    entry = next((facts for key, facts in _MODELS.items() if key in words), None)
    size = _MEMORY.search(name)
    if size is not None:
        memory = int(size.group(1)) * _GIB
        return GpuFacts((memory, memory), entry[0] if entry else None)
    return GpuFacts() if entry is None else GpuFacts((min(entry[1]) * _GIB, max(entry[1]) * _GIB), entry[0])
