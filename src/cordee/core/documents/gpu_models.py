"""What is known of GPU models by their names: the one table of it, `gpu_models.toml` beside this file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping, Optional

FILE = Path(__file__).with_name("gpu_models.toml")
_GIB = 1 << 30
_USABLE = 0.987  # of A100, H100 and H200 by PyTorch's total capacity; the driver has the rest
_MEMORY = re.compile(r"(\d{2,3})gi?b?(?![a-z0-9])")


@dataclass(frozen=True)
class GpuFacts:
    """What one GPU is: `memory` the smallest and the largest that it may have, in bytes; None is not known. `sizes`: all that its
    name may mean, the common one first. `usable`: the share of it that a process can have."""

    memory: Optional[tuple[int, int]] = None
    capability: Optional[float] = None
    sizes: tuple[int, ...] = ()
    usable: float = 1.0


@lru_cache(maxsize=None)
def gpu_table() -> Mapping[str, Any]:
    """Return the table as it is: `family`, `model` and `fallback`."""
    import tomllib

    return tomllib.loads(FILE.read_text())


def model_words(model: str) -> list[str]:
    """Return the words of a model's name, of which the order and the signs between them differ: `a100_80gb`."""
    return re.split(r"[^a-z0-9]+", model.lower())


def gpu_facts(model: str) -> GpuFacts:
    """Return what a model's name says of it: `a100_80gb`."""
    words = model_words(model)
    entry: Mapping[str, Any] = next((facts for key, facts in gpu_table()["family"].items() if key in words), {})
    named = [int(size) for size in _MEMORY.findall(model.lower())]
    named = [size for size in named if size not in entry.get("host_memory_gib", ())]
    named = named or [size for word, size in entry.get("variants", {}).items() if word in words]
    sizes = tuple(size * _GIB for size in named[:1] or entry.get("memory_gib", ()))
    memory = (min(sizes), max(sizes)) if sizes else None
    return GpuFacts(memory, entry.get("capability"), sizes, entry.get("usable", _USABLE))
