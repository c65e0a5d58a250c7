"""Conditions of rules: a tiny language over features, in three values, since a feature that was not measured decides nothing.

`sm < 0.4`, `cpu > 0.8 or io > 0.1`, `max(P, D) >= 0.6 and D > P`, `known(data_wait)`. There are numbers, features, `+ - * /`,
`max`, `min`, comparisons, `and`, `or`, `not` and `known`, which is true where a feature was measured. A comparison with what
was not measured is neither true nor false; `and` and `or` are so only where the other side does not decide.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cordee.core.errors import DocumentError

_LONGEST = 400
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
_COUNT: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
}
_CHOOSE: dict[str, Callable[[Any, Any], Any]] = {"max": np.maximum, "min": np.minimum}
_ALLOWED = "numbers, features, + - * /, max, min, known, comparisons, and, or, not"


@dataclass(frozen=True)
class ConditionTruth:
    """Where a condition is true, and where it is false; where it is neither it cannot be said. Boolean arrays of one shape."""

    true: np.ndarray
    false: np.ndarray

    @classmethod
    def of(cls, shape: tuple[int, ...], value: bool) -> ConditionTruth:
        """Return a condition that has one value everywhere."""
        return cls(np.full(shape, value), np.full(shape, not value))

    def __and__(self, other: ConditionTruth) -> ConditionTruth:
        return ConditionTruth(self.true & other.true, self.false | other.false)

    def __or__(self, other: ConditionTruth) -> ConditionTruth:
        return ConditionTruth(self.true | other.true, self.false & other.false)

    def __invert__(self) -> ConditionTruth:
        return ConditionTruth(self.false, self.true)


class Condition:
    """One condition, parsed.

    Args:
        text: as a rule has it.
        names: features that there are.

    Attributes:
        features: those that it asks about, in order.

    Raises:
        DocumentError: it is none; says what is allowed.
    """

    def __init__(self, text: str, names: Collection[str]) -> None:
        self.text = text
        self.features: list[str] = []
        if len(text) > _LONGEST:
            raise DocumentError("a condition is too long", given=f"{text[:40]}...", allowed=f"{_LONGEST} characters")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise DocumentError("a condition cannot be read", given=text, allowed=_ALLOWED) from error
        self._check_truth(self._tree, names)

    def __str__(self) -> str:
        return self.text

    def evaluate(self, features: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> ConditionTruth:
        """Return where it holds; a feature that is not there was not measured.

        Args:
            features: arrays of `shape`, NaN = not measured.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._truth(self._tree, features, shape)

    def _truth(self, node: ast.expr, features: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> ConditionTruth:
        if isinstance(node, ast.BoolOp):
            parts = [self._truth(value, features, shape) for value in node.values]
            result = parts[0]
            for part in parts[1:]:
                result = result & part if isinstance(node.op, ast.And) else result | part
            return result
        if isinstance(node, ast.UnaryOp):
            return ~self._truth(node.operand, features, shape)
        if isinstance(node, ast.Call):
            known = np.isfinite(self._number(node.args[0], features, shape))
            return ConditionTruth(known, ~known)
        assert isinstance(node, ast.Compare)
        result = ConditionTruth.of(shape, True)
        left = self._number(node.left, features, shape)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self._number(comparator, features, shape)
            known = np.isfinite(left) & np.isfinite(right)
            holds = _COMPARE[type(operator)](left, right)
            result = result & ConditionTruth(known & holds, known & ~holds)
            left = right
        return result

    def _number(self, node: ast.expr, features: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        if isinstance(node, ast.Name):
            found = features.get(node.id)
            return np.full(shape, np.nan) if found is None else np.asarray(found)
        if isinstance(node, ast.Constant):
            return np.full(shape, float(node.value))  # type: ignore[arg-type]
        if isinstance(node, ast.UnaryOp):
            negative: np.ndarray = -self._number(node.operand, features, shape)
            return negative
        if isinstance(node, ast.BinOp):
            count = _COUNT[type(node.op)]
            counted: np.ndarray = count(
                self._number(node.left, features, shape), self._number(node.right, features, shape)
            )
            return counted
        assert isinstance(node, ast.Call)
        values = [self._number(argument, features, shape) for argument in node.args]
        choose = _CHOOSE[_name(node)]
        result = values[0]
        for value in values[1:]:
            result = choose(result, value)
        return result

    def _check_truth(self, node: ast.expr, names: Collection[str]) -> None:
        """Refuse what is no condition."""
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self._check_truth(value, names)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._check_truth(node.operand, names)
        elif isinstance(node, ast.Call) and _name(node) == "known":
            if len(node.args) != 1 or node.keywords or not isinstance(node.args[0], ast.Name):
                raise self._fault(node, "known() takes one feature")
            self._check_number(node.args[0], names)
        elif isinstance(node, ast.Compare) and all(type(operator) in _COMPARE for operator in node.ops):
            for value in (node.left, *node.comparators):
                self._check_number(value, names)
        else:
            raise self._fault(node, "this is no condition")

    def _check_number(self, node: ast.expr, names: Collection[str]) -> None:
        """Refuse what is no number."""
        if isinstance(node, ast.Name):
            if node.id not in names:
                raise DocumentError("there is no such feature", given=node.id, allowed=sorted(names))
            if node.id not in self.features:
                self.features.append(node.id)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
                raise self._fault(node, "this is no number")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            self._check_number(node.operand, names)
        elif isinstance(node, ast.BinOp) and type(node.op) in _COUNT:
            self._check_number(node.left, names)
            self._check_number(node.right, names)
        elif isinstance(node, ast.Call) and _name(node) in _CHOOSE and len(node.args) > 1 and not node.keywords:
            for argument in node.args:
                self._check_number(argument, names)
        else:
            raise self._fault(node, "this is no number")

    def _fault(self, node: ast.expr, text: str) -> DocumentError:
        part = ast.get_source_segment(self.text.strip(), node) or self.text
        return DocumentError(text, given=f"{part} in {self.text}" if part != self.text else part, allowed=_ALLOWED)


def _name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""
