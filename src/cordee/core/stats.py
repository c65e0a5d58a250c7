"""Which of several equal things differs from the others: statistics that a few bad peers cannot bend."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Hashable, Iterable, Mapping, NamedTuple, Optional, Sequence, TypeVar

if TYPE_CHECKING:
    import numpy as np

K = TypeVar("K")

# From the median absolute deviation to the standard deviation, where noise is normal.
MAD_TO_SIGMA = 1.4826
_MEAN_TO_SIGMA = 1.2533
_BELONGS_TO_ALL_RATIO = 0.3
# Coordinates in which ranks may differ and still do the same work: copies of the model, and shards of one layer.
_SAME_DATA = frozenset({"dp", "ddp", "fsdp", "dp_shard", "dp_replicate", "edp"})
_SAME_LAYERS = _SAME_DATA | {"tp", "sp"}


class Outlier(NamedTuple):
    """A value far from its peers': `z` counts robust standard deviations, `ratio` is value over median (NaN at 0)."""

    value: float
    median: float
    z: float
    ratio: float


def finite(value: float) -> Optional[float]:
    """Return a number as JSON can hold it: None for NaN and infinities."""
    return value if math.isfinite(value) else None


def finite_values(values: Iterable[float]) -> list[Optional[float]]:
    """Return numbers, of a list or an array of one dimension, as JSON can hold them."""
    return [finite(float(value)) for value in values]


def finite_document(value: Any) -> Any:
    """Return a value of nested mappings and lists as JSON can hold it; NumPy's numbers become Python's."""
    if isinstance(value, Mapping):
        return {str(key): finite_document(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_document(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    return finite(value) if isinstance(value, float) else value


def median(values: Iterable[float]) -> float:
    """Return the median of the values that are not NaN.

    Raises:
        ValueError: there is none.
    """
    ordered = sorted(value for value in values if value == value)
    if not ordered:
        raise ValueError("the median of no values")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def quantile(values: Iterable[float], share: float) -> float:
    """Return the quantile at `share` (0-1), between neighbours by straight line; NaN values are left out.

    Raises:
        ValueError: there is no value, or `share` is outside 0-1.
    """
    ordered = sorted(value for value in values if value == value)
    if not ordered or not 0 <= share <= 1:
        raise ValueError("a quantile needs values and a share between 0 and 1")
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)


def mad(values: Iterable[float]) -> float:
    """Return the median absolute deviation from the median, not scaled.

    Raises:
        ValueError: there is no value.
    """
    present = [value for value in values if value == value]
    centre = median(present)
    return median(abs(value - centre) for value in present)


def centre_and_spread(values: np.ndarray) -> tuple[float, float]:
    """Return the median of an array and the standard deviation that its MAD stands for; there is a value, and none is NaN."""
    import numpy as np

    centre = float(np.median(values))
    return centre, MAD_TO_SIGMA * float(np.median(np.abs(values - centre)))


def robust_z(values: Sequence[float], floor_ratio: float = 0.01, noise: float = 0.0) -> list[float]:
    """Return how many robust standard deviations each value lies above the median; NaN stays NaN.

    The deviation is estimated from the MAD and is at least `floor_ratio` of the median, and at least `noise`, so that noise far
    below what matters is not blown up; where all are zero (most values are zero) the mean absolute deviation takes their place.
    """
    present = [value for value in values if value == value]
    if not present:
        return [float("nan")] * len(values)
    centre = median(present)
    spread = max(MAD_TO_SIGMA * mad(present), floor_ratio * abs(centre), noise)
    if spread == 0:
        spread = _MEAN_TO_SIGMA * sum(abs(value - centre) for value in present) / len(present)
    return [(value - centre) / spread if spread > 0 else value * 0.0 for value in values]


def outliers(
    values: dict[K, float],
    *,
    z: float = 5.0,
    ratio: float = 0.1,
    side: str = "both",
    least: int = 4,
    noise: float = 0.0,
    apart: float = 0.0,
) -> dict[K, Outlier]:
    """Return the values that differ from their peers both in deviations and in size.

    With fewer than `least` values nobody is blamed; nor is anybody when more than 30 % would be, since then the
    reference is wrong.

    Args:
        values: by device; NaN means not measured and is neither judged nor used.
        z: at least so many robust standard deviations from the median.
        ratio: and at least this share of the median away from it.
        side: `high`, `low` or `both`.
        least: fewest values that allow a comparison.
        noise: the standard deviation that each value has by itself, where that is known.
        apart: and at least so far away from the median.

    Raises:
        ValueError: `side` is none of these.
    """
    if side not in ("high", "low", "both"):
        raise ValueError(f"side is high, low or both, not {side!r}")
    present = {key: value for key, value in values.items() if value == value}
    if len(present) < least:
        return {}
    centre = median(present.values())
    found = {}
    scores = robust_z(list(present.values()), noise=noise)
    for index, (key, value) in enumerate(present.items()):
        score = scores[index]
        wanted = side == "both" or (score > 0) == (side == "high")
        if wanted and abs(score) >= z and abs(value - centre) >= max(ratio * abs(centre), apart):
            found[key] = Outlier(value, centre, score, value / centre if centre else float("nan"))
    return {} if belongs_to_all(len(found), len(present)) else found


def belongs_to_all(found: int, among: int) -> bool:
    """Return whether so many differ that nobody is to be blamed: the reference is wrong then."""
    return found > _BELONGS_TO_ALL_RATIO * among


def peers_of(places: Mapping[K, Mapping[str, int]], least: int = 4) -> dict[K, Hashable]:
    """Return the group of equals that each member belongs to: those that stand at the same place, so that their work is the same.

    Ranks that differ in data parallelism alone do the same. Where they are fewer than `least`, those of all tensor-parallel
    coordinates are taken together, which share the work of a layer equally; stages of a pipeline and experts are never mixed.
    Members without a place are one group.

    Args:
        places: coordinates by name (`dp`, `tp`, `pp`, ...).
    """
    for alike in (_SAME_DATA, _SAME_LAYERS):
        groups = {
            key: tuple(sorted(pair for pair in place.items() if pair[0] not in alike)) for key, place in places.items()
        }
        sizes: dict[Hashable, int] = {}
        for group in groups.values():
            sizes[group] = sizes.get(group, 0) + 1
        if all(size >= least for size in sizes.values()):
            break
    return dict(groups)


def outliers_among_peers(
    values: Mapping[K, float], group_of: Mapping[K, Hashable], *, least: int = 4, **rule: Any
) -> dict[K, Outlier]:
    """Return the values that differ from those of their own group: see `outliers`; whoever has no group is in that of `None`."""
    groups: dict[Hashable, dict[K, float]] = {}
    for key, value in values.items():
        groups.setdefault(group_of.get(key), {})[key] = value
    found: dict[K, Outlier] = {}
    for members in groups.values():
        found.update(outliers(members, least=least, **rule))
    return found
