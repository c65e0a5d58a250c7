"""The values that a sweep tries: ranges and choices, on a grid, at random, or by Sobol's sequence."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cordee.core.errors import DocumentError

MOST_TRIALS = 100_000
_MOST_TOLD = 8
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
    """One parameter: `choices`, or a range from `low` to `high`, of whole numbers or by its logarithm.

    Attributes:
        when: other parameters, and the values of each (as text) with which this one has a value; else it has `otherwise`.
        otherwise: None: words of the command in which it stands are left out.
    """

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    log: bool = False
    when: Mapping[str, tuple[str, ...]] = {}
    otherwise: str | None = None

    def holds(self, values: Mapping[str, str]) -> bool:
        """Return whether it has a value beside those of the parameters before it."""
        return all(values.get(name) in allowed for name, allowed in self.when.items())

    def document(self) -> dict[str, Any]:
        """Return it as the plan has it, with choices as text."""
        return {**self._asdict(), "choices": self.grid if self.choices else [], "when": dict(self.when)}

    def at(self, share: float) -> str:
        """Return the value at a share, from 0 to below 1, of what there is."""
        if self.choices:
            return str(self.choices[int(share * len(self.choices))])
        if self.whole:
            return str(int(self.low) + int(share * (self.high - self.low + 1)))
        if self.log:
            return _text(math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low))))
        return _text(self.low + share * (self.high - self.low))

    @property
    def words(self) -> str:
        """How it was understood, in words."""
        if self.choices:
            values = self.grid or []
            told = "one of " + ", ".join(values[:_MOST_TOLD]) + (", ..." if len(values) > _MOST_TOLD else "")
        elif self.whole:
            count = int(self.high - self.low) + 1
            told = f"{count} whole numbers, {self.low:.0f} to {self.high:.0f} (real ones: {float(self.low)}..{float(self.high)})"
        else:
            told = f"real numbers from {self.low:g} to {self.high:g}{', even in their logarithm' if self.log else ''}"
        held = " and ".join(f"{name} is {' or '.join(values)}" for name, values in self.when.items())
        return f"{self.name}: {told}{f', where {held}' if held else ''}"

    @property
    def grid(self) -> list[str] | None:
        """All values; None for a range of real numbers."""
        if self.choices:
            return [str(choice) for choice in self.choices]
        return [str(value) for value in range(int(self.low), int(self.high) + 1)] if self.whole else None


def _text(value: float) -> str:
    return f"{value:.6g}"


def parameter(name: str, given: Any) -> SweepParameter:
    """Return a parameter as the document gives it.

    Raises:
        DocumentError: it is no range, or has no value in it.
    """
    if isinstance(given, Mapping):
        return _conditional(name, given)
    if isinstance(given, (tuple, list)):
        if given:
            return SweepParameter(name, tuple(given))
        raise _wrong(name, "has no value", list(given))
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
        raise _wrong(name, "is not a range of a parameter", given) from None
    whole = not log and low.lstrip("-").isdigit() and high.lstrip("-").isdigit()
    if whole and -1 <= first <= last <= 1:
        # Whole numbers by the rule, and hardly ever meant so.
        numbers = ", ".join(str(value) for value in range(int(first), int(last) + 1))
        allowed = f'"{first}..{last}" (real numbers), [{numbers}] (only these)'
        raise _wrong(name, f"may mean the numbers {numbers}, or all between", given, allowed)
    if not (math.isfinite(first) and math.isfinite(last)) or first > last or (log and first <= 0):
        allowed = "a range that begins above 0" if log else "a range whose end is not below its beginning"
        raise _wrong(name, "is a range without values", given, allowed)
    return SweepParameter(name, (), first, last, whole, log)


def _wrong(name: str, text: str, given: Any, allowed: str = _FORMS) -> DocumentError:
    return DocumentError(f"sweep.{name} {text}", given=given, allowed=allowed, next=f"change sweep.{name}")


def _conditional(name: str, given: Mapping[str, Any]) -> SweepParameter:
    """Return a parameter that has a condition: `{ range = ..., when = { other = value or values }, otherwise = ... }`."""
    when = given.get("when")
    if "range" not in given or set(given) - {"range", "when", "otherwise"} or not isinstance(when, Mapping) or not when:
        allowed = '{ range = "0.5..0.99", when = { opt = "sgd" } }, and otherwise = a value'
        raise _wrong(name, "is no parameter with a condition", dict(given), allowed)
    values = {
        other: tuple(str(one) for one in (those if isinstance(those, (list, tuple)) else [those]))
        for other, those in when.items()
    }
    otherwise = given.get("otherwise")
    plain = parameter(name, given["range"])
    return plain._replace(when=values, otherwise=None if otherwise is None else str(otherwise))


def space_of(parameters: Mapping[str, Any]) -> list[SweepParameter]:
    """Return the parameters of a sweep, in their order.

    Raises:
        DocumentError: one is no range, or has a condition on what does not come before it.
    """
    space = [parameter(name, given) for name, given in parameters.items()]
    for index, one in enumerate(space):
        before = {other.name: other for other in space[:index]}
        for name, values in one.when.items():
            known = before.get(name)
            if known is None or (known.choices and not set(values) <= set(known.grid or ())):
                allowed = sorted(before) if known is None else known.grid
                what = "name a parameter that stands before it, and values that it has"
                text = f"sweep.{one.name} has a condition that never holds"
                raise DocumentError(text, given={name: list(values)}, allowed=allowed, next=what)
    return space


def active(space: Sequence[SweepParameter], values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of those parameters whose conditions hold, and what others have otherwise."""
    found: dict[str, str] = {}
    for one in space:
        if one.holds(found):
            found[one.name] = values[one.name]
        elif one.otherwise is not None:
            found[one.name] = one.otherwise
    return found


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
        text = f"the sampler {sampler} needs to know how many"
        raise DocumentError(text, given=None, allowed="trials = 64", next="set [sweep] trials")
    if trials > MOST_TRIALS:
        text = "the sweep has too many trials"
        raise DocumentError(text, given=trials, allowed=f"at most {MOST_TRIALS}", next="ask for fewer")
    chance = random.Random(seed)
    points: Iterator[Sequence[float]]
    if sampler == "random":
        points = ([chance.random() for _ in space] for _ in range(trials))
    elif len(space) > MOST_SOBOL:
        text, what = "too many parameters for sobol", 'set sampler = "random"'
        raise DocumentError(text, given=len(space), allowed=f"at most {MOST_SOBOL}", next=what)
    else:
        points = sobol(len(space), trials, [chance.getrandbits(_BITS) for _ in space])
    return [
        active(space, {one.name: one.at(share) for one, share in zip(space, point, strict=True)}) for point in points
    ]


def _grid(space: Sequence[SweepParameter], trials: int | None) -> list[dict[str, str]]:
    values: Mapping[str, list[str] | None] = {one.name: one.grid for one in space}
    endless = [name for name, all_of in values.items() if all_of is None]
    if endless:
        text = f"a grid needs values, and sweep.{endless[0]} is a range"
        what = 'give a list, or set trials and sampler = "sobol"'
        raise DocumentError(text, given=endless[0], allowed="a list of values", next=what)
    count = math.prod(len(all_of or ()) for all_of in values.values())
    if count > MOST_TRIALS:
        text, what = "the grid has too many points", 'set sampler = "sobol"'
        raise DocumentError(text, given=count, allowed=f"at most {MOST_TRIALS}", next=what)
    points = itertools.product(*(all_of or () for all_of in values.values()))
    met = (active(space, dict(zip(values, point, strict=True))) for point in points)
    different = {tuple(point.items()): point for point in met}
    return list(itertools.islice(different.values(), trials))


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
