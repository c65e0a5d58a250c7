"""What counts as full: of each GPU model the share of a pipe and of DRAM that a well written microbenchmark reaches."""

from __future__ import annotations

from cordee.insight.saturation.result import Caps

_FALLBACK = {"tensor": 0.93, "fp64": 1.0, "fp32": 1.0, "fp16": 1.0}
_FALLBACK_DRAM = 0.80
_FALLBACK_ORIGIN = "fallback, not measured"
_CORES = {"instructions": 4.0}


def caps_of(model: str, kind: str = "gpu") -> Caps:
    """Return the caps of a model: measured ones where there are any, else the fallback, marked as such."""
    if kind == "cpu":
        return Caps(model, dict(_CORES), 1.0, _FALLBACK_ORIGIN, False)
    return Caps(model, dict(_FALLBACK), _FALLBACK_DRAM, _FALLBACK_ORIGIN, False)
