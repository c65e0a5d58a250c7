"""What measured runs have said of predictions: a factor for each way of predicting, kept in the user's cache."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.documents.config_paths import cache_folder

SCHEMA = "cordee.plan-calibration/1"
CALIBRATION = "calibration"  # the part of a peak that comes of it
LEAST_RUNS = 3
# Beyond these another fault is more likely than a machine that differs.
_LEAST, _MOST = 0.7, 1.6


class MeasuredPeak(NamedTuple):
    """A run's predicted and measured peak, in bytes; `predicted` without any calibration.

    Attributes:
        key: of `calibration_key`.
        inside: whether what was measured lay in the interval that was told.
    """

    run: str
    key: str
    predicted: int
    measured: int
    inside: bool

    @property
    def ratio(self) -> float:
        """What was measured over what was predicted."""
        return self.measured / self.predicted


def calibration_key(*, on_gpu: bool, traced: bool) -> str:
    """Return the name of a way of predicting: each has errors of its own."""
    return f"{'gpu' if on_gpu else 'cpu'}-{'traced' if traced else 'formula'}"


def calibrated(found: Sequence[MeasuredPeak]) -> dict[str, float]:
    """Return a factor for each way of predicting that enough runs have measured: the median of their ratios."""
    keys = {one.key: [other.ratio for other in found if other.key == one.key] for one in found}
    known = {key: statistics.median(ratios) for key, ratios in keys.items() if len(ratios) >= LEAST_RUNS}
    return {key: min(_MOST, max(_LEAST, ratio)) for key, ratio in known.items()}


def keep_calibration(found: Sequence[MeasuredPeak], environ: Mapping[str, str] = os.environ) -> dict[str, float]:
    """Write the log and its factors, and return these; plans use them from now on.

    Raises:
        OSError: it cannot be written.
    """
    factors, path = calibrated(found), _file(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"schema": SCHEMA, "factors": factors, "runs": [one._asdict() for one in found]}
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(document))
    fresh.replace(path)
    known_calibration.cache_clear()
    return factors


@lru_cache(maxsize=1)
def known_calibration() -> dict[str, float]:
    """Return the factors that are kept, none where nothing that can be read is."""
    try:
        document: dict[str, Any] = json.loads(_file(os.environ).read_text())
        factors = document["factors"] if document["schema"] == SCHEMA else {}
        return {str(key): min(_MOST, max(_LEAST, float(ratio))) for key, ratio in factors.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _file(environ: Mapping[str, str]) -> Path:
    return cache_folder(environ) / "plan" / "calibration.json"
