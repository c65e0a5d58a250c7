"""Matrices of small integers whose product every correct machine gets to the bit, and a checksum that is known beforehand.

Element (i, j) is a hash of i * n + j, mapped to -1, 0 or 1 with few non-zeros: all partial sums of a product stay below
256, which every floating-point format from bfloat16 up holds exactly, so that the order of adding does not matter. The
checksum of C = A B is the sum of r_i C_ij c_j modulo 2^64 with odd weights r and c; (r A) (B c) gives the same number in
n^2 steps (R. Freivalds, "Probabilistic machines can use less running time", 1977). The same functions take arrays of numpy and of torch.
"""

from __future__ import annotations

from typing import Any

MODULUS = 1 << 64
_FIRST, _SECOND = 0x2545F4914F6CDD1D, 0x369DEA0F31A53F85  # odd, below 2^63: arrays of signed integers wrap around
_SEED_A, _SEED_B, _SEED_ROWS, _SEED_COLUMNS = 1_000_003, 2_000_029, 3_000_017, 4_000_037


def _mixed(index: Any) -> Any:
    mixed = index * _FIRST
    mixed = mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)
    return mixed * _SECOND


def _signs(index: Any) -> Any:
    bits = (_mixed(index) >> 40) & 7
    return (bits == 0) * 1 - (bits == 1) * 1


def _odd(index: Any) -> Any:
    return ((_mixed(index) >> 17) & 0x3FFFFFFF) | 1


def factors(index: Any, size: int) -> tuple[Any, Any]:
    """Return A and B as integers, of the form of `index`: 0 ... size * size - 1 as a matrix of 64-bit integers."""
    return _signs(index + _SEED_A * size), _signs(index + _SEED_B * size)


def weights(line: Any) -> tuple[Any, Any]:
    """Return the weights of rows and of columns, of the form of `line`: 0 ... size - 1."""
    return _odd(line + _SEED_ROWS), _odd(line + _SEED_COLUMNS)


def expected_checksum(a: Any, b: Any, rows: Any, columns: Any) -> int:
    """Return the checksum that A B must have, without multiplying them."""
    left = (a * rows[:, None]).sum(0)
    right = (b * columns[None, :]).sum(1)
    return int((left * right).sum()) % MODULUS


def checksum(product: Any, rows: Any, columns: Any) -> int:
    """Return the checksum of a product given as 64-bit integers."""
    return int((product * rows[:, None] * columns[None, :]).sum()) % MODULUS


def plain_factors(size: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return A and B as lists."""
    lines = range(size)
    first = [[_sign_plain(i * size + j + _SEED_A * size) for j in lines] for i in lines]
    return first, [[_sign_plain(i * size + j + _SEED_B * size) for j in lines] for i in lines]


def plain_weights(size: int) -> tuple[list[int], list[int]]:
    """Return the weights of rows and of columns as lists."""
    return [_odd_plain(i + _SEED_ROWS) for i in range(size)], [_odd_plain(j + _SEED_COLUMNS) for j in range(size)]


def plain_checksum(product: list[list[int]], rows: list[int], columns: list[int]) -> int:
    """Return the checksum of a product given as lists."""
    return sum(r * c * value for r, line in zip(rows, product) for c, value in zip(columns, line)) % MODULUS


def plain_expected_checksum(a: list[list[int]], b: list[list[int]], rows: list[int], columns: list[int]) -> int:
    """Return the checksum that A B must have, without multiplying them."""
    left: list[int] = [sum(r * value for r, value in zip(rows, column)) for column in zip(*a)]
    right = [sum(c * value for c, value in zip(columns, line)) for line in b]
    return sum(one * other for one, other in zip(left, right)) % MODULUS


def _mixed_plain(index: int) -> int:
    mixed = index * _FIRST % MODULUS
    mixed ^= (mixed >> 29) & 0x7FFFFFFFF
    return mixed * _SECOND % MODULUS


def _sign_plain(index: int) -> int:
    bits = (_mixed_plain(index) >> 40) & 7
    return (bits == 0) - (bits == 1)


def _odd_plain(index: int) -> int:
    return ((_mixed_plain(index) >> 17) & 0x3FFFFFFF) | 1
