"""The pair test: which node, or which link, holds the others back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PairOutcome:
    """What the pair test found.

    Attributes:
        results: by node, the document of its `pair.bandwidth` result, judged.
        pairs: what was measured: `{"round", "nodes": [a, b], "bytes_per_s", "reason"}`.
        links: links that are to blame: `{"nodes": [a, b]}` or `{"switches": [s, t]}` with `text`.
        confused: `{"check", "nodes", "text", "abort"}` when too many nodes are slow to blame any of them.
    """

    results: dict[str, dict[str, Any]]
    pairs: list[dict[str, Any]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    confused: list[dict[str, Any]] = field(default_factory=list)
