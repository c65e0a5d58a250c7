"""The values that a sweep tries: ranges and choices, on a grid, at random, or by Sobol's sequence."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cordee.core.errors import DocumentError

MOST_TRIALS = 100_000
_FORMS = '"log 1e-5..1e-1", "0.1..0.9", "1..8" (whole numbers), or a list of values'
# Sobol's sequence after Joe and Kuo (2008, new-joe-kuo-6): degree, polynomial and first direction numbers of each dimension behind the first.
_DIRECTIONS: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
    (5, 7, (1, 1, 7, 11, 19)),
)
MOST_SOBOL = len(_DIRECTIONS) + 1
_BITS = 30


class SweepParameter(NamedTuple):
    """One parameter: `choices`, or a range from `low` to `high`, of whole numbers or by its logarithm."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    log: bool = False

    def at(self, share: float) -> str:
        """Return the value at a share, from 0 to below 1, of what there is."""
        if self.choices:
            return _text(self.choices[int(share * len(self.choices))])
        if self.whole:
            return str(int(self.low) + int(share * (self.high - self.low + 1)))
        if self.log:
            return _text(math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low))))
        return _text(self.low + share * (self.high - self.low))

    @property
    def grid(self) -> list[str] | None:
        """All values; None for a range of real numbers."""
        if self.choices:
            return [_text(choice) for choice in self.choices]
        return [str(value) for value in range(int(self.low), int(self.high) + 1)] if self.whole else None


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def parameter(name: str, given: Any) -> SweepParameter:
    """Return a parameter as the document gives it.

    Raises:
        DocumentError: it is no range, or has no value in it.
    """
    if isinstance(given, (tuple, list)):
        if given:
            return SweepParameter(name, tuple(given))
        raise DocumentError(
            f"sweep.{name} has no value", given=list(given), allowed=_FORMS, next=f"change sweep.{name}"
        )
    if not isinstance(given, str):
        return SweepParameter(name, (given,))
    words = given.split()
    log = words[:1] == ["log"]
    low, dots, high = (words[-1] if words else "").partition("..")
    try:
        if not dots or len(words) != 1 + log:
            raise ValueError
        first, last = float(low), float(high)
    except ValueError:
        raise DocumentError(
            f"sweep.{name} is not a range of a parameter", given=given, allowed=_FORMS, next=f"change sweep.{name}"
        ) from None
    whole = not log and low.lstrip("-").isdigit() and high.lstrip("-").isdigit()
    if not (math.isfinite(first) and math.isfinite(last)) or first > last or (log and first <= 0):
        allowed = "a range that begins above 0" if log else "a range whose end is not below its beginning"
        raise DocumentError(
            f"sweep.{name} is a range without values", given=given, allowed=allowed, next=f"change sweep.{name}"
        )
    return SweepParameter(name, (), first, last, whole, log)


def choose(space: Sequence[SweepParameter], sampler: str, trials: int | None, seed: int) -> list[dict[str, str]]:
    """Return the values of each trial.

    Args:
        sampler: grid, random or sobol.
        trials: how many; None: all of a grid.

    Raises:
        DocumentError: the sampler cannot do that.
    """
    if not space:
        raise DocumentError("the sweep has no parameter", allowed=_FORMS, next="add one to [sweep]")
    if sampler == "grid":
        return _grid(space, trials)
    if trials is None:
        raise DocumentError(
            f"the sampler {sampler} needs to know how many",
            given=None,
            allowed="trials = 64",
            next="set [sweep] trials",
        )
    if trials > MOST_TRIALS:
        raise DocumentError(
            "the sweep has too many trials", given=trials, allowed=f"at most {MOST_TRIALS}", next="ask for fewer"
        )
    chance = random.Random(seed)
    points: Iterator[Sequence[float]]
    if sampler == "random":
        points = ([chance.random() for _ in space] for _ in range(trials))
    elif len(space) > MOST_SOBOL:
        raise DocumentError(
            "too many parameters for sobol",
            given=len(space),
            allowed=f"at most {MOST_SOBOL}",
            next='set sampler = "random"',
        )
    else:
        points = sobol(len(space), trials, [chance.getrandbits(_BITS) for _ in space])
    return [{one.name: one.at(share) for one, share in zip(space, point, strict=True)} for point in points]


def _grid(space: Sequence[SweepParameter], trials: int | None) -> list[dict[str, str]]:
    values: Mapping[str, list[str] | None] = {one.name: one.grid for one in space}
    endless = [name for name, all_of in values.items() if all_of is None]
    if endless:
        text = f"a grid needs values, and sweep.{endless[0]} is a range"
        raise DocumentError(
            text, given=endless[0], allowed="a list of values", next='give a list, or set trials and sampler = "sobol"'
        )
    count = math.prod(len(all_of or ()) for all_of in values.values())
    if count > MOST_TRIALS:
        raise DocumentError(
            "the grid has too many points", given=count, allowed=f"at most {MOST_TRIALS}", next='set sampler = "sobol"'
        )
    points = itertools.product(*(all_of or () for all_of in values.values()))
    return [dict(zip(values, point, strict=True)) for point in itertools.islice(points, trials)]


def sobol(dimensions: int, count: int, shift: Sequence[int] = ()) -> Iterator[list[float]]:
    """Yield points of Sobol's sequence in [0, 1), the first of them 0 but for the digital shift.

    Args:
        shift: of each dimension, `_BITS` bits that are put over those of all points.
    """
    numbers = [_direction_numbers(index) for index in range(dimensions)]
    now = list(shift) or [0] * dimensions
    for index in range(count):
        yield [value / (1 << _BITS) for value in now]
        lowest = ((index + 1) & -(index + 1)).bit_length() - 1
        now = [value ^ directions[lowest] for value, directions in zip(now, numbers, strict=True)]


def _direction_numbers(dimension: int) -> list[int]:
    if dimension == 0:
        return [1 << (_BITS - 1 - bit) for bit in range(_BITS)]
    degree, polynomial, first = _DIRECTIONS[dimension - 1]
    found = [number << (_BITS - 1 - bit) for bit, number in enumerate(first)]
    for bit in range(degree, _BITS):
        value = found[bit - degree] ^ (found[bit - degree] >> degree)
        for term in range(1, degree):
            if polynomial >> (degree - 1 - term) & 1:
                value ^= found[bit - term]
        found.append(value)
    return found
