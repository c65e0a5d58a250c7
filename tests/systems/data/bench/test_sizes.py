"""How many samples and bytes a batch holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from cordee.systems.data.bench.sizes import size_of

FOUR = numpy.zeros((4, 10), numpy.float32)


@pytest.mark.parametrize(
    ("batch", "samples", "size"),
    [
        (FOUR, 4, 160),
        ({"image": FOUR, "label": numpy.arange(4)}, 4, 160 + 32),
        ({"image": [b"ab", b"c"], "label": [1, 2]}, 2, 3),
        ((FOUR, FOUR[:, 0].copy()), 4, 176),
        ([b"abc", b"defg"], 2, 7),
        ([{"jpg": b"abc"}, {"jpg": b"d"}, {"jpg": b""}], 3, 4),
        ([(b"abc", 1), (b"d", 2)], 2, 4),
        ([numpy.zeros(3, numpy.uint8), numpy.zeros(5, numpy.uint8)], 2, 8),
        (b"abc", 1, 3),
        ({}, 1, 0),
        ([], 0, 0),
    ],
)
def test_a_batch_is_counted_by_looking_at_it(batch: Any, samples: int, size: int) -> None:
    assert size_of(batch) == (samples, size)


def test_tensors_are_counted_as_arrays_are() -> None:
    import torch

    assert size_of(torch.zeros(4, 10)) == (4, 160)
    assert size_of([torch.zeros(4, 10), torch.zeros(4)]) == (4, 176)


def test_a_batch_that_counts_itself_is_believed() -> None:
    assert size_of(SimpleNamespace(samples=7, bytes=70)) == (7, 70)


def test_as_many_arrays_as_samples_were_asked_for_are_samples() -> None:
    pictures = [numpy.zeros((8, 8), numpy.uint8) for _ in range(3)]
    assert size_of(pictures, expected=3) == (3, 192)
    assert size_of(pictures) == (8, 192), "else they look like columns"
